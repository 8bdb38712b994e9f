"""``pk.sample``: chains that learn together, for log densities that are expensive.

``pm.sample`` runs chains that know nothing of each other, each in its process. Here they go in lockstep, and a round's
points are evaluated side by side, in this process or by any ``concurrent.futures.Executor``. All of them learn one
surrogate, from all points (:mod:`pymc_kameleon.samplers.pooled`), of the log density or of the model's black boxes;
then everything is frozen and they draw.
"""

import hashlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from inspect import signature
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import pymc as pm
from pymc.exceptions import SamplingError

from pymc_kameleon.checkpoint import Checkpoint
from pymc_kameleon.numerics.blas import one_thread
from pymc_kameleon.numerics.checks import positive
from pymc_kameleon.numerics.evaluations import Evaluations
from pymc_kameleon.samplers.pooled.by_factors import ByFactors
from pymc_kameleon.samplers.pooled.by_values import ByValues
from pymc_kameleon.samplers.pooled.chains import Chains, posterior
from pymc_kameleon.samplers.pooled.checks import audits
from pymc_kameleon.sampling import arguments, told, workers
from pymc_kameleon.steps import KamiltonianStep
from pymc_kameleon.steps.factors.factored_density import FactoredDensity
from pymc_kameleon.steps.known_points import known_points
from pymc_kameleon.steps.options import described
from pymc_kameleon.steps.pooled_trace import add_control_variates, to_idata
from pymc_kameleon.steps.told.pooled_progress import Progress
from pymc_kameleon.verdict import convergence

if TYPE_CHECKING:
    from arviz import InferenceData
    from xarray import DataTree

_log = logging.getLogger("pymc.kameleon")

DECIDED = ("tune", "longest", "stretch", "last", "earliest", "begun_with")  # of a plan, when a run is begun


def sample(
    draws: int | None = None,
    *,
    tune: int | str = "auto",
    chains: int = 16,
    step: KamiltonianStep | None = None,
    model: pm.Model | None = None,
    executor: Any = None,
    random_seed: Any = None,
    target_ess: float | None = None,
    max_evaluations: int | None = None,
    control_variates: bool = False,
    initvals: str | dict[str, Any] | Sequence[dict[str, Any]] = "jitter",
    evaluations: Any = None,
    checkpoint: Any = None,
    timeout: float | None = None,
    discard_tuned_samples: bool = True,
    progressbar: bool = True,
    idata_kwargs: dict[str, Any] | None = None,
    **others: Any,
) -> "InferenceData | DataTree":
    """Sample a model whose log density is expensive, by chains that share what they learn.

    At 500 to 2,000 evaluations in all, chains that learn a log density as a whole, each alone, have not converged.
    Here all of them learn one surrogate (``KamiltonianStep``'s: of black boxes one by one where that step learns them
    so, otherwise of the log density as a whole) from every point that any of them has evaluated; when tuning ends it is
    frozen, and the draws are exact as that step's are, whatever the surrogate. The chains share what they learned; they
    share no draws.

    Parameters
    ----------
    draws : int, optional
        Of every chain, after tuning. Default: as many as ``target_ess`` or ``max_evaluations`` ask for; 200 if neither
        is given.
    tune : int or "auto"
        Tuning draws of every chain, or until the surrogate is good and gets no better (default): at most 400
        evaluations a dimension and half of ``max_evaluations``, of all chains together; half as many again where the
        surrogate is not usable by then and enough is left for draws. Where black boxes are learned one by one a quarter
        of all evaluations at least, or 30 a dimension if those are fewer: tails are seldom seen.
    chains : int
        Default 16. A round evaluates one point for each of them: take as many as there are workers, or a multiple. With
        very few evaluations in all, 4 to 16 are best.
    step : KamiltonianStep, optional
        With its options. Default: ``KamiltonianStep()``. It has to sample every variable of the model. That step alone:
        what the others propose by they learn from the draws, and a budget's are too few.
    model : pymc.Model, optional
        Default: the model on the context stack. All of its variables are continuous.
    executor : Executor or "vectorized", optional
        Who evaluates: anything with ``submit`` (``ProcessPoolExecutor``, loky, mpi4py's ``MPIPoolExecutor``), a Dask
        ``Client``, or a callable that makes one of these, which is called again if a worker dies. Default: this
        process, one point after the other. The draws are the same, bit for bit. ``"vectorized"``: this process, all
        points of a round in one call, by PyTensor's vectorised graph; a :class:`pymc_kameleon.BatchedBlackBox` is
        called once for all of them. The same up to rounding.
    random_seed : int, sequence of int or numpy.random.Generator, optional
        The draws depend on it, on the number of chains and on the budgets, and on nothing else.
    target_ess : float, optional
        Stop when the least bulk effective sample size of all chains together is so large, and R-hat below 1.03 (the
        nested one where chains are in groups of four or more). Looked at after every tenth draw.
    max_evaluations : int, optional
        Of the log density, in all: starts, tuning and draws. Never exceeded. Not counted: one for each unknown where
        one Op serves all groups, one when a checkpoint is resumed, one for a batch, and what is submitted again.
    control_variates : bool
        Evaluate up to 120 draws of the surrogate as well (for ten draws of the posterior three), and keep what
        :func:`pymc_kameleon.expectations` needs: the groups ``surrogate_posterior``, 8,000 draws of the surrogate, and
        ``control_variates``. The posterior's draws are the same. Default False.
    initvals : {"jitter", "prior"}, dict or list of dict
        Where the chains' climbs begin: around the model's initial point as in ``pm.sample`` (default; where there is no
        density, at draws from the prior), at draws from the prior, around one point given by the names of variables, or
        one point for every chain. What is left of the
        evaluations for looking at other modes looks from draws of the prior, whatever this is. Where black boxes are
        learned one by one every second chain by default begins there, and nothing looks where points are given. A
        solver that raises ends the run, but in a look: let it return NaN, or give ``initvals={}``, around the initial
        point.
    evaluations : InferenceData, DataTree, Dataset, Evaluations or (points, log densities), optional
        Points whose log density is known up to a constant: what an earlier ``pk.sample`` returned or
        ``checkpoint.load`` reads, or a table. Not compared under noise. Points are an array of shape (n, d) in the
        order of the value variables, or a dict of arrays by the names of the value variables (unconstrained) or of the
        model's variables; the log densities, (n,), are with respect to those. The chains begin at some of them, which
        are evaluated again: a difference that is not a constant is refused. Where black boxes are learned one by one,
        what an earlier run returned has what they returned; a table says where chains begin, and no more. They shorten
        tuning and do not replace it: the surrogate is judged along the new chains.
    checkpoint : path-like, optional
        A folder, in which every round is kept as soon as it is evaluated. The same call goes on with the run in it
        after a crash, with the same bits; at most one round is lost. So does a call with another ``max_evaluations``,
        ``draws`` or ``target_ess``, which makes a finished run longer; it was tuned as it was. One of its points is
        evaluated again, to see whether the model is the same.
    timeout : float, optional
        Seconds for an evaluation by an ``executor``, a worker's first included, for which it compiles the model. What
        is not there by then is submitted once more, then ``TimeoutError`` is raised.
    discard_tuned_samples : bool
        False keeps the tuning draws, in ``warmup_posterior``.
    progressbar : bool
        One bar, in evaluations.
    idata_kwargs : dict, optional
        For ``pm.to_inference_data``.
    others
        Refused, with what to do instead: arguments that ``pm.sample`` has.

    Returns
    -------
    InferenceData or DataTree
        What ``pm.sample`` returns, with one group more: ``evaluations``, every point evaluated (value variables,
        unconstrained) with ``_log_density``, ``_chain``, ``_round`` and ``_move``; where black boxes are learned one by
        one, with ``_outputs``, what they returned.

    Raises
    ------
    TypeError
        For arguments that there are not, and for values of the wrong type.
    ValueError
        For options that contradict each other, models that have other than continuous variables, evaluations of
        another log density, and a checkpoint of another run, or of one that has spent more.
    FileExistsError
        If ``checkpoint`` is a file.
    pymc.exceptions.SamplingError
        If the log density is finite neither at the initial point nor at any start, nor at draws of the prior
        (unless ``initvals`` gives points), or the evaluations end before the first draw.
    RuntimeError
        If a checkpoint asks for other points than it holds.
    TimeoutError, concurrent.futures.BrokenExecutor
        If a worker does not answer, or died.
    Exception
        What the model raises, with the point added as a note. Return NaN to reject a point instead.

    Notes
    -----
    Statistics of every draw: ``accept``, ``accepted``, ``lp``, ``move``, ``share``, ``step_size``, ``energy_error``,
    ``diverging``, ``surrogate_diverging``, ``n_steps``, ``surrogate``, ``surrogate_error``, ``residual_sd``,
    ``uncovered``, ``refits``, as of ``KamiltonianStep`` (``factors``, ``noncentred`` and ``worst_factor`` where it has
    them; ``surrogate`` is the family's word here, ``worst_factor`` the factor's name), ``evaluations``, of all chains
    so far, and ``mode``, the number of the mode in which a chain is, 0 where one is known.

    Without a climb where the log likelihood is noisy (``NoisyLogLikelihood``): values cannot be compared there.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     idata = pk.sample(max_evaluations=2000, executor=ProcessPoolExecutor(16))
    """
    if others:
        ours = [n for n, p in signature(sample).parameters.items() if p.kind is not p.VAR_KEYWORD]
        raise arguments.unknown(next(iter(others)), ours)
    arguments.check(
        model=(model, pm.Model | None), step=(step, Any), draws=(draws, int | None), tune=(tune, int | str),
        chains=(chains, int), control_variates=(control_variates, bool),
        max_evaluations=(max_evaluations, int | None),
        target_ess=(target_ess, float | None),
        timeout=(timeout, float | None), checkpoint=(checkpoint, str | PathLike | None),
        initvals=(initvals, str | dict | list | tuple), progressbar=(progressbar, bool),
        discard_tuned_samples=(discard_tuned_samples, bool), idata_kwargs=(idata_kwargs, dict | None),
    )  # fmt: skip
    positive(target_ess=target_ess, timeout=timeout)
    arguments.check_counts(draws, tune, chains, max_evaluations)
    arguments.check_starts(initvals, chains)
    seed, kept = arguments.seed_of(random_seed), None
    model = pm.modelcontext(model)
    step = arguments.checked_step(step, model)
    density = step.density
    plan = arguments.plan_of(draws, tune, chains, max_evaluations, target_ess, density)
    if control_variates:
        arguments.check_control_variates(density)
        plan = plan._replace(audits=audits.AUDITS)
    known = None if evaluations is None else known_points(evaluations, model, density)
    if checkpoint is not None:
        header = {"chains": chains, "tune": tune, "initvals": initvals, **arguments.made_with(step)}
        optional = {
            "control_variates": control_variates or None,
            "outputs": None if density.outputs is None else len(density.outputs), "evaluations": _digest(known),
        }  # fmt: skip
        header |= {name: value for name, value in optional.items() if value is not None}
        # how long it tunes is decided once: whoever goes on with more evaluations has the same bits up to there
        fixed = {"random_seed": arguments.shown(random_seed), "max_evaluations": max_evaluations}
        fixed |= {name: getattr(plan, name) for name in DECIDED}
        given = None if random_seed is None else seed
        kept = Checkpoint(checkpoint, described(header), given, seed, density.dim, described(fixed))
        seed = kept.seed
        plan = plan._replace(**{name: kept.fixed[name] for name in DECIDED})
        kept.check_budget(max_evaluations, plan.longest if plan.tune is None else plan.tune)
    initial, starts, scale, far, elsewhere = arguments.starts_of(model, step, initvals, chains, seed)
    engine = evaluate = arguments.evaluator(executor, model, step, seed, timeout)
    if kept is not None:
        kept.verify(engine)
        evaluate = partial(kept.evaluate, engine)
    begin = time.perf_counter()
    with ThreadPoolExecutor(min(os.cpu_count() or 1, chains)) as threads:
        learner: Any = ByValues(density.scales, **step.learning_options)
        if isinstance(density, FactoredDensity):
            learner = ByFactors(density.parts_known)
        options = {
            "scale": scale,
            "far": far,
            "elsewhere": elsewhere,
            "known": known,
            "apply": threads.map,
            "learner": learner,
        }
        options["angles"] = density.circles
        run = Chains(initial, starts, np.random.SeedSequence(seed, spawn_key=(0,)), plan, **options)
        engine.excuse = run.excuse
        if isinstance(engine, workers.Elsewhere):
            engine.meanwhile = run.ahead
        with Progress(progressbar, run, max_evaluations, target_ess) as progress:
            _run(run, evaluate, progress, target_ess, step)
    if not run.rows:
        raise SamplingError(
            f"{run.evaluated.size} evaluations ended in tuning, before a draw. Give more (max_evaluations=), or "
            "fewer chains."
        )
    seconds = time.perf_counter() - begin
    attributes = told.attributes_of(run, model, density, seconds)
    attributes |= {} if checkpoint is None else {"checkpoint": str(checkpoint)}
    idata = to_idata(
        model, density, run.warmup, run.rows, run.evaluated, seconds=seconds,
        keep_warmup=not discard_tuned_samples, attributes=attributes, **(idata_kwargs or {}),
    )  # fmt: skip
    told.advise(run, attributes, idata)
    if control_variates and run.modes > 1:
        _log.warning(
            "Control variates are of one surrogate, and each of the %d modes has its own: there are none.", run.modes
        )
    elif control_variates and run.free is not None:
        idata = add_control_variates(idata, model, density, run.free, run.log_ratios())
    return idata


def _digest(known: Evaluations | None) -> str | None:
    if known is None:
        return None
    parts = (x.tobytes() for x in (known.positions, known.log_densities, known.outputs))
    return hashlib.blake2b(b"".join(parts), digest_size=8).hexdigest()


def _run(
    run: Chains, evaluate: Callable[..., list[Any]], progress: Progress, target_ess: float | None, step: KamiltonianStep
) -> None:
    """Rounds, until they are done or interrupted; the user's threads of BLAS are for the evaluations."""
    try:
        while not run.done:
            rows = len(run.rows)
            with one_thread():
                requests = run.ask()
            points = [request.position for request in requests]
            try:
                values = evaluate(points, run.evaluated.size) if points else []
            except workers.EvaluationError as found:
                step.watch.add_point(found.error, found.point)
                raise found.error from None
            with one_thread():
                run.tell(values)
            if run.nowhere:
                raise told.nowhere(step.model, step.density, run.initial, run.evaluated.size)
            judged = convergence.Judgement()
            looked_at = target_ess is not None or not progress.bar.disable  # a judgement takes as long as some rounds
            if looked_at and len(run.rows) > rows and len(run.rows) % convergence.EVERY == 0:
                judged = convergence.judge(posterior(run), run.groups)
                if target_ess is not None and convergence.is_enough(judged, target_ess):
                    run.stopped = "target"
            progress.update(judged)
    except KeyboardInterrupt:  # as pm.sample: what there is
        if not run.rows:
            raise
        run.stopped = "interrupted"
