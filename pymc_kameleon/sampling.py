"""``pk.sample``: chains that learn together, for log densities that are expensive.

``pm.sample`` runs chains that know nothing of each other, each in its process. Here they go in lockstep, and a round's
points are evaluated side by side, in this process or by any ``concurrent.futures.Executor``. All of them learn one
surrogate, from all points (:mod:`pymc_kameleon.samplers.pooled`); then everything is frozen and they draw.
"""

import hashlib
import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from functools import partial
from importlib.metadata import version
from inspect import signature
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import pymc as pm
from pymc.exceptions import SamplingError
from pymc.initial_point import make_initial_point_fn

from pymc_kameleon import convergence, workers
from pymc_kameleon.checkpoint import Checkpoint
from pymc_kameleon.numerics.checks import positive
from pymc_kameleon.sample_report import report
from pymc_kameleon.samplers.option_types import check_types
from pymc_kameleon.samplers.pooled import audits
from pymc_kameleon.samplers.pooled.chains import Chains, posterior
from pymc_kameleon.samplers.pooled.plan import Plan, automatic
from pymc_kameleon.samplers.pooled.pools import Pools
from pymc_kameleon.steps import KamiltonianStep
from pymc_kameleon.steps.batched import batched_log_density
from pymc_kameleon.steps.factors import structure
from pymc_kameleon.steps.known_points import known_points
from pymc_kameleon.steps.log_density import LogDensity
from pymc_kameleon.steps.options import described
from pymc_kameleon.steps.pooled_trace import add_control_variates, to_idata
from pymc_kameleon.steps.prior_scale import jitter, prior_scale
from pymc_kameleon.steps.told import advice
from pymc_kameleon.steps.told.pooled_progress import Progress
from pymc_kameleon.surrogates.values.regression import affordable

if TYPE_CHECKING:
    from arviz import InferenceData
    from xarray import DataTree

_log = logging.getLogger("pymc.kameleon")

CHAINS = 16
DRAWS = 200  # of every chain, where nothing else says when to stop
DECIDED = ("tune", "longest", "stretch", "last")  # of a plan, when a run is begun
NOISE = 1  # spawn keys of the seed: 0 is the chains'


def sample(
    draws: int | None = None,
    *,
    tune: int | str = "auto",
    chains: int = CHAINS,
    step: KamiltonianStep | None = None,
    model: pm.Model | None = None,
    executor: Any = None,
    random_seed: Any = None,
    target_ess: float | None = None,
    max_evaluations: int | None = None,
    pools: int = 1,
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

    At 500 to 5,000 evaluations in all, chains that learn alone have not begun to converge. Here all of them learn one
    surrogate of the log density (``KamiltonianStep``'s) from every point that any of them has evaluated; when tuning
    ends it is frozen, and the draws are exact as that step's are, whatever the surrogate. The chains share what they
    learned; they share no draws.

    Parameters
    ----------
    draws : int, optional
        Of every chain, after tuning. Default: as many as ``target_ess`` or ``max_evaluations`` ask for; 200 if neither
        is given.
    tune : int or "auto"
        Tuning draws of every chain, or until the surrogate is good and gets no better (default): at most 400
        evaluations a dimension and half of ``max_evaluations``, of all chains together; three quarters where the
        surrogate is not usable by then.
    chains : int
        Default 16. A round evaluates one point for each of them: take as many as there are workers, or a multiple. With
        very few evaluations in all, 4 to 16 are best.
    step : KamiltonianStep, optional
        With its options. Default: ``KamiltonianStep()``. It has to sample every variable of the model.
    model : pymc.Model, optional
        Default: the model on the context stack. All of its variables are continuous.
    executor : Executor or "vectorized", optional
        Who evaluates: anything with ``submit`` (``ProcessPoolExecutor``, loky, mpi4py's ``MPIPoolExecutor``), a Dask
        ``Client``, or a callable that makes one of these, which is called again if a worker dies. Default: this
        process, one point after the other. The draws are the same, bit for bit. ``"vectorized"``: this process, all
        points of a round in one call, by PyTensor's vectorised graph; a :class:`pymc_kameleon.BatchedBlackBox` is
        called once for all of them. The same up to rounding.
    random_seed : int, sequence of int or numpy.random.Generator, optional
        The draws depend on it, on the numbers of chains and pools and on the budgets, and on nothing else.
    target_ess : float, optional
        Stop when the least bulk effective sample size of all chains together is so large, and R-hat below 1.03 (the
        nested one where chains are in groups of four or more). Looked at after every tenth draw.
    max_evaluations : int, optional
        Of the log density, in all: starts, tuning and draws. Never exceeded.
    pools : int
        Into how many parts the chains are divided, of two chains or more, which learn apart and share nothing: what one
        pool does not know another may, and then they disagree, as chains that share a surrogate cannot.
        ``pk.report`` compares them, with the statistic ``pool``. Each pays for a surrogate of its own. Default 1.
    control_variates : bool
        Evaluate up to 120 draws of the surrogate as well (for ten draws of the posterior three), and keep what
        :func:`pymc_kameleon.expectations` needs: the groups ``surrogate_posterior``, 8,000 draws of the surrogate, and
        ``control_variates``. The posterior's draws are the same. Default False.
    initvals : {"jitter", "prior"}, dict or list of dict
        Where the chains' climbs begin: around the model's initial point as in ``pm.sample`` (default), at draws from
        the prior, around one point given by the names of variables, or one point for every chain.
    evaluations : InferenceData, DataTree, Dataset or (points, log densities), optional
        Points whose log density is known up to a constant: what an earlier ``pk.sample`` returned, or a table. Points
        are an array of shape (n, d) in the order of the value variables, or a dict of arrays by the names of the value
        variables (unconstrained) or of the model's variables; the log densities, (n,), are with respect to those. The
        chains begin at some of them, which are evaluated again: a difference that is not a constant is refused. They
        shorten tuning and do not replace it: the surrogate is judged along the new chains.
    checkpoint : path-like, optional
        A folder, in which every round is kept as soon as it is evaluated. The same call goes on with the run in it
        after a crash, with the same bits; at most one round is lost. So does a call with another ``max_evaluations``,
        ``draws`` or ``target_ess``, which makes a finished run longer; it was tuned as it was. One of its points is
        evaluated again, to see whether the model is the same.
    timeout : float, optional
        Seconds for an evaluation by an ``executor``. It is submitted once more, then ``TimeoutError`` is raised.
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
        unconstrained) with ``_log_density``, ``_chain``, ``_round`` and ``_move``.

    Raises
    ------
    TypeError
        For arguments that there are not, and for values of the wrong type.
    ValueError
        For options that contradict each other, models that have other than continuous variables, and evaluations of
        another log density.
    pymc.exceptions.SamplingError
        If the log density is finite neither at the initial point nor at any start.
    Exception
        What the model raises, with the point added as a note. Return NaN to reject a point instead.

    Notes
    -----
    Statistics of every draw: ``accept``, ``accepted``, ``lp``, ``move``, ``share``, ``step_size``, ``energy_error``,
    ``diverging``, ``surrogate_diverging``, ``n_steps``, ``surrogate``, ``surrogate_error``, ``residual_sd``,
    ``uncovered``, ``refits``, as of ``KamiltonianStep``, ``evaluations``, of all chains so far, ``pool``, and ``mode``,
    the number of the mode in which a chain is, if several are known.

    Without a climb where the log likelihood is noisy (``NoisyLogLikelihood``): values cannot be compared there.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     idata = pk.sample(max_evaluations=2000, executor=ProcessPoolExecutor(16))
    """
    if others:
        raise _unknown(next(iter(others)))
    _check(
        model=(model, pm.Model | None), step=(step, Any), draws=(draws, int | None), tune=(tune, int | str),
        chains=(chains, int), pools=(pools, int), control_variates=(control_variates, bool),
        max_evaluations=(max_evaluations, int | None),
        target_ess=(target_ess, float | None),
        timeout=(timeout, float | None), checkpoint=(checkpoint, str | PathLike | None),
        initvals=(initvals, str | dict | list | tuple), progressbar=(progressbar, bool),
        discard_tuned_samples=(discard_tuned_samples, bool), idata_kwargs=(idata_kwargs, dict | None),
    )  # fmt: skip
    positive(target_ess=target_ess, timeout=timeout)
    model = pm.modelcontext(model)
    step = _checked_step(step, model)
    density = step.density
    plan = _plan(draws, tune, chains, max_evaluations, target_ess, density)
    _check_pools(pools, chains, evaluations)
    if control_variates:
        _check_control_variates(density, pools)
        plan = plan._replace(audits=audits.AUDITS)
    known = None if evaluations is None else known_points(evaluations, model, density)
    seed, kept = _seed(random_seed), None
    if checkpoint is not None:
        header = {"chains": chains, "tune": tune, "initvals": initvals, **_made_with(step)}
        if pools > 1:
            header["pools"] = pools
        if control_variates:
            header["control_variates"] = True
        if known is not None:
            parts = (known.positions.tobytes(), known.log_densities.tobytes())
            header["evaluations"] = hashlib.blake2b(b"".join(parts), digest_size=8).hexdigest()
        # how long it tunes is decided once: whoever goes on with more evaluations has the same bits up to there
        fixed = {"random_seed": _shown(random_seed), "max_evaluations": max_evaluations}
        fixed |= {name: getattr(plan, name) for name in DECIDED}
        given = None if random_seed is None else seed
        kept = Checkpoint(checkpoint, described(header), given, seed, density.dim, described(fixed))
        seed = kept.seed
        plan = plan._replace(**{name: kept.fixed[name] for name in DECIDED})
        kept.check_budget(max_evaluations, plan.longest if plan.tune is None else plan.tune)
    initial, starts, scale = _starts(model, step, initvals, chains, seed)
    entropy = seed if density.noise_cells() else None
    if isinstance(executor, str):
        evaluate: Any = _vectorized(executor, model, step)
    elif executor is None:
        evaluate = workers.Here(density, entropy)
    else:
        evaluate = workers.Elsewhere(density, entropy, executor, timeout)
    engine = evaluate
    if kept is not None:
        kept.verify(evaluate)
        evaluate = partial(kept.evaluate, evaluate)
    begin = time.perf_counter()
    with ThreadPoolExecutor(min(os.cpu_count() or 1, chains)) as threads:
        options = {"scale": scale, "known": known, "apply": threads.map, **step.learning_options}
        run: Any
        if pools == 1:
            alone = np.random.SeedSequence(seed, spawn_key=(0,))
            run = Chains(initial, starts, alone, plan, **options)
        else:
            run = Pools(pools, initial, starts, seed, plan, **options)
        if isinstance(engine, workers.Elsewhere):
            engine.meanwhile = run.ahead
        with Progress(progressbar, run, max_evaluations, target_ess) as progress:
            _run(
                run, evaluate, progress, target_ess, lambda: _refuse(model, density, initial), step
            )
    if not run.rows:
        raise SamplingError(
            f"{run.evaluated.size} evaluations ended in tuning, before a draw. Give more (max_evaluations=), or "
            "fewer chains."
        )
    seconds = time.perf_counter() - begin
    found = _failures(run, model, density) | _probed(run, density) | _sought(run, density)
    attributes = _attributes(run, seconds, found)
    idata = to_idata(
        model, density, run.warmup, run.rows, run.evaluated, seconds=seconds,
        keep_warmup=not discard_tuned_samples, attributes=attributes, **(idata_kwargs or {}),
    )  # fmt: skip
    _advise(run, attributes, idata)
    if control_variates and run.modes > 1:
        _log.warning(
            "Control variates are of one surrogate, and each of the %d modes has its own: there are none.",
            run.modes,
        )
    elif control_variates and run.free is not None:
        idata = add_control_variates(idata, model, density, run.free, run.log_ratios())
    return idata


def _run(
    run: Any,
    evaluate: Callable[..., list[float]],
    progress: Progress,
    target_ess: float | None,
    refuse: Callable[[], None],
    step: KamiltonianStep,
) -> None:
    """Rounds, until they are done or interrupted."""
    try:
        while not run.done:
            requests = run.ask()
            points = [request.position for request in requests]
            try:
                values = evaluate(points, run.evaluated.size) if points else []
            except workers.EvaluationError as found:
                step.add_point(found.error, found.point)
                raise found.error from None
            run.tell(values)
            if run.nowhere:
                refuse()
            judged = convergence.Judgement()
            if run.rows and len(run.rows) % convergence.EVERY == 0:
                judged = convergence.judge(posterior(run), run.groups)
                if target_ess is not None and convergence.is_enough(judged, target_ess):
                    run.stopped = "target"
            progress.update(judged)
    except KeyboardInterrupt:  # as pm.sample: what there is
        if not run.rows:
            raise
        run.stopped = "interrupted"


# --- arguments --------------------------------------------------------------------------------------

_INSTEAD = {
    "start": "it is initvals=, as in pm.sample",
    **dict.fromkeys(
        ("cores", "mp_ctx", "blas_cores"),
        "give it workers: executor=concurrent.futures.ProcessPoolExecutor(4)",
    ),
    "compile_kwargs": "give them to its step: step=KamiltonianStep(learn='all', compile_kwargs=...)",
    "var_names": "it returns all variables; take those that you want from idata['posterior']",
    "callback": "end it by target_ess=, max_evaluations= or Ctrl-C, all of which return the draws so far",
    **dict.fromkeys(("trace", "backend"), "checkpoint= keeps on disk what is evaluated"),
}


def _unknown(name: str) -> TypeError:
    """The error for an argument that there is not."""
    ours = [n for n, p in signature(sample).parameters.items() if p.kind is not p.VAR_KEYWORD]
    if name in _INSTEAD:
        what = _INSTEAD[name]
    elif name in signature(pm.sample).parameters or name in ("nuts", "target_accept"):
        what = "it is for pm.sample, whose chains are independent and may have other steps"
    else:
        close = get_close_matches(name, ours, 1)
        what = f"did you mean {close[0]}=?" if close else f"it has {', '.join(ours)}"
    return TypeError(f"pk.sample has no argument {name}: {what}{'' if what.endswith('?') else '.'}")


def _check(**given: tuple[Any, Any]) -> None:
    """Types, before anything is evaluated: what is wrong with the end of a run would lose all of it."""
    values, kinds = ({name: pair[i] for name, pair in given.items()} for i in (0, 1))
    check_types(values, kinds)
    known = signature(pm.to_inference_data).parameters
    wrong = sorted(set(values["idata_kwargs"] or {}) - set(known))
    if wrong:
        raise TypeError(
            f"idata_kwargs has {', '.join(wrong)}; pm.to_inference_data has {', '.join(known)}."
        )


def _check_pools(pools: int, chains: int, known: Any) -> None:
    if not 1 <= pools <= chains // 2 and pools != 1:
        raise ValueError(
            f"pools must be at least 1 and at most {max(1, chains // 2)} for {chains} chains, two of them in each; got "
            f"{pools}."
        )
    if pools > 1 and known is not None:
        raise ValueError(
            f"pools={pools} learn apart, and evaluations= would be known to all of them. Give one of the two."
        )


def _check_control_variates(density: LogDensity, pools: int) -> None:
    if pools > 1:
        raise ValueError(
            f"control_variates=True is for one surrogate, and pools={pools} have one each. Give one of the two."
        )
    if density.noisy:
        raise ValueError(
            "control_variates=True compares the surrogate with log densities, and this model's are noisy estimates."
        )


def _checked_step(step: Any, model: pm.Model) -> KamiltonianStep:
    if step is None:
        step = KamiltonianStep(model=model, learn="all")
        boxes, predict = structure.boxes_of(model)
        if boxes > 1 or predict:
            what = f"{boxes} black boxes one by one" if boxes > 1 else "black box's predictions"
            _log.info(
                "pk.sample learns the log density as a whole, not its %s, which pm.sample(step=KamiltonianStep()) "
                "does.", what,
            )  # fmt: skip
    if not (isinstance(step, KamiltonianStep) and step.variant == "values"):
        raise ValueError(
            f"step must be a KamiltonianStep with surrogate='values', got {step!r}: the other steps learn nothing that "
            "chains could share."
        )
    if step.model is not model:
        raise ValueError(
            "step is of another model. Build it in this one: KamiltonianStep(model=model, learn='all')."
        )
    step.check_model()
    if step.by_factors:  # such a step has no options of its own
        _log.info(
            "pk.sample learns the log density as a whole, although the step it was given would learn the model's black "
            "boxes one by one: it goes on with KamiltonianStep(learn='all'). pm.sample uses the step as it is."
        )
        step = KamiltonianStep(model=model, learn="all")
    if step.density.suspects:
        _log.warning("pk.sample: %s", advice.hidden_noise(step.density.suspects))
    if step.has_known_points:
        raise ValueError(
            "Give evaluations= to pk.sample, not to its step: all chains learn from them."
        )
    if step.has_auxiliary:
        raise ValueError(
            "pk.sample has fresh noise for every estimate: no correlation=, no refresh_blocks=."
        )
    if step.learning_draws is not None:
        raise ValueError(
            f"pk.sample tunes for as long as its tune= says: no learning_draws={step.learning_draws}."
        )
    missing = sorted({v.name for v in model.value_vars} - {v.name for v in step.vars})
    if missing:
        raise ValueError(
            f"pk.sample has one step for all variables, and they have to be continuous; {', '.join(missing)} is not "
            "among the step's. Use pm.sample, with a step for each kind."
        )
    return step


def _vectorized(executor: Any, model: pm.Model, step: KamiltonianStep) -> Any:
    """All points of a round in one call."""
    density = step.density
    if executor != "vectorized":
        raise ValueError(f'executor must be an executor or "vectorized", got {executor!r}.')
    if density.noisy:
        raise ValueError(
            'executor="vectorized" is for log densities without noise: estimates have their random streams one by '
            "one. Use an executor with workers."
        )
    batched = batched_log_density(model, step.vars, model.initial_point(), density.compile_kwargs)
    return workers.Vectorized(density, batched)


def _seed(random_seed: Any) -> int:
    """One number for the run, so that it can be kept with a checkpoint."""
    if isinstance(random_seed, np.random.Generator):
        return int(random_seed.integers(2**63))
    try:
        words = np.random.SeedSequence(random_seed).generate_state(2, np.uint64)
    except (TypeError, ValueError) as error:
        raise type(error)(
            "random_seed must be None, an integer of at least 0, a sequence of such, or a Generator, got "
            f"{random_seed!r}."
        ) from error
    return int(words[0])


def _shown(random_seed: Any) -> str:
    """What the user gave, for messages."""
    simple = random_seed is None or isinstance(random_seed, (int, np.integer, list, tuple))
    return str(random_seed) if simple else f"a {type(random_seed).__name__}"


def _made_with(step: KamiltonianStep) -> dict[str, Any]:
    """What the bits of a run depend on, beside its seed and its plan."""
    packages = ("numpy", "scipy", "numba", "pymc", "pytensor")
    variables = {name: list(shape) for name, shape in step.shapes.items()}
    return {
        "dim": step.density.dim,
        "variables": variables,
        "options": step.options,
        "versions": {name: version(name) for name in packages},
    }


def _plan(
    draws: int | None,
    tune: int | str,
    chains: int,
    most: int | None,
    target_ess: float | None,
    density: LogDensity,
) -> Plan:
    for name, value in {"draws": draws, "chains": chains, "max_evaluations": most}.items():
        if value is not None and not (isinstance(value, (int, np.integer)) and value >= 1):
            raise ValueError(f"{name} must be a positive integer, got {value!r}.")
    if not (tune == "auto" or (isinstance(tune, (int, np.integer)) and tune >= 1)):
        raise ValueError(f'tune must be "auto" or a positive integer, got {tune!r}.')
    if not affordable(density.dim):
        raise ValueError(
            f"{density.dim} dimensions are more than a surrogate of the log density can be fitted in; use pm.sample "
            "with FastKameleonStep."
        )
    fixed = None if tune == "auto" else int(tune) * chains
    if most is not None:
        least = 4 * chains if fixed is None else fixed + chains
        if most < least:
            raise ValueError(
                f"max_evaluations must be at least {least} for {chains} chains"
                f"{'' if fixed is None else f' and tune={tune}'}, got {most}."
            )
    if draws is None and most is None and target_ess is None:
        draws = DRAWS
    return automatic(
        density.dim, chains, draws=draws, tune=fixed, most=most, climb=not density.noisy
    )


def _starts(
    model: pm.Model, step: KamiltonianStep, initvals: Any, chains: int, seed: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(initial point (d,), starts (chains, d), scale (d,))."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2,)))
    density = step.density
    points = [initvals] * chains if isinstance(initvals, dict) else initvals
    if not isinstance(points, str) and not all(isinstance(p, dict) for p in points):
        raise TypeError(
            f"initvals must be a dict, or a list of dicts, of names and values, got {initvals!r}."
        )
    if not isinstance(points, str) and len(points) != chains:
        raise ValueError(f"initvals has {len(points)} points for {chains} chains.")
    given = None
    if not isinstance(points, str):
        shapes = model.eval_rv_shapes()  # those of ``dims`` are not known otherwise
        given = [_point(model, p, rng, shapes) for p in points]
    point = _point(model, {}, rng, {}) if given is None else given[0]
    initial = density.ravel(point).copy()
    scale = prior_scale(model, step.vars, point)
    if isinstance(points, str) and points not in ("jitter", "prior"):
        raise ValueError(
            f'initvals must be "jitter", "prior", a dict or a list of dicts, got {initvals!r}.'
        )
    if points == "prior":
        return initial, np.array([_prior_draw(model, density, rng) for _ in range(chains)]), scale
    if given is not None and not isinstance(initvals, dict):
        return initial, np.array([density.ravel(p) for p in given]), scale
    box = rng.uniform(-1.0, 1.0, (chains, len(initial)))
    return initial, initial + jitter(scale) * box, scale


def _point(
    model: pm.Model, values: dict[str, Any], rng: np.random.Generator, shapes: dict[str, Any]
) -> dict[str, np.ndarray]:
    """The model's initial point with ``values``, by names of variables, in the place of its own."""
    names = [rv.name for rv in model.free_RVs]
    for name, value in values.items():
        if name not in names:
            raise ValueError(
                f"initvals names {name!r}; the model's variables are {', '.join(names)}."
            )
        value = np.asarray(value)
        if not np.isfinite(value).all():
            raise ValueError(f"initvals has {name} = {value.tolist()}, which is not finite.")
        if value.shape != shapes[name]:
            raise ValueError(
                f"initvals has {name} of shape {value.shape}; the model's has {tuple(map(int, shapes[name]))}."
            )
    function = make_initial_point_fn(
        model=model, overrides=dict(values), jitter_rvs=None, return_transformed=True
    )
    return function(int(rng.integers(2**31)))


def _prior_draw(model: pm.Model, density: LogDensity, rng: np.random.Generator) -> np.ndarray:
    with model:
        function = make_initial_point_fn(
            model=model, overrides=dict.fromkeys(model.free_RVs, "prior"), jitter_rvs=None,
            return_transformed=True,
        )  # fmt: skip
        return density.ravel(function(int(rng.integers(2**31))))


def _refuse(model: pm.Model, density: LogDensity, x: np.ndarray) -> None:
    point = density.update({}, x)
    factors = density.offending_factors(model, point)
    found = ", ".join(f"{name} = {v}" for name, v in factors.items()) or "their sum"
    raise SamplingError(
        "pk.sample cannot start: the log density is finite neither at the initial point nor at the chains' starts. "
        f"Not finite at the initial point: {found}. The point (unconstrained): "
        f"{ {k: np.asarray(v).tolist() for k, v in point.items()} }. Give others with pk.sample(initvals=...), 'prior' "
        "for instance, or look at the factors named."
    )


# --- what is told -----------------------------------------------------------------------------------


def _failures(run: Any, model: pm.Model, density: LogDensity) -> dict[str, Any]:
    """How many evaluations were NaN or +inf, and, if that is worth saying, of which factor and where."""
    found: dict[str, Any] = {"failed": run.failed}
    if run.failed >= max(advice.FAILURES, advice.FAILING * run.evaluated.size):
        x, value = run.failed_at
        point = density.update({}, x)
        try:
            factors = density.offending_factors(model, point)
        except Exception:  # a model may raise only sometimes; what is known is said all the same
            factors = {}
        found["failed_where"] = advice.where_it_failed(factors, value, point)
    return found


def _attributes(run: Any, seconds: float, found: dict[str, Any]) -> dict[str, Any]:
    """What the run was, for ``pk.report`` and for the next one."""
    tuning = run.warmup[-1].evaluations if run.warmup else 0
    hub = run.hub
    return {
        "sampler": "pymc_kameleon.sample",
        "evaluations": run.evaluated.size,
        "evaluations_tuning": tuning,
        "rounds": run.rounds,
        "seconds": seconds,
        "nonfinite": int(np.sum(~np.isfinite(run.evaluated.log_densities))),
        **found,
        "surrogate": hub.fit.family if hub.fit is not None else "none",
        "surrogate_error": float(hub.fit.error) if hub.fit is not None else math.nan,
        "residual_sd": float(hub.quality.residual_sd),
        "uncovered": float(hub.quality.uncovered),
        "walk_share": float(hub.mixture.floor) if hub.mixture is not None else 1.0,
        "groups": list(run.groups),
        "modes": run.modes,
        **({"pools": list(run.pool)} if isinstance(run, Pools) else {}),
        "stopped": run.stopped or "done",
    }


def _probed(run: Any, density: LogDensity) -> dict[str, Any]:
    """What the draws from the flattened surrogate have found."""
    found = run.probed()
    if not found.probes:
        return {}
    told: dict[str, Any] = {"probes": found.probes, "probes_missed": found.missed}
    if found.where is not None:
        told["missed_where"] = _named(found.where, density)
    return told


def _sought(run: Any, density: LogDensity) -> dict[str, Any]:
    """How many climbs there were, and whether the draws reach where they ended."""
    found = run.sought()
    told: dict[str, Any] = {"climbs": found.climbs, "climbs_met": found.met}
    if found.where is not None:
        told["ends_elsewhere"] = _named(found.where, density)
    return told


def _named(x: np.ndarray, density: LogDensity) -> str:
    """A point by the names of the value variables."""
    point = density.update({}, x)
    return ", ".join(f"{name} = {np.round(value, 3).tolist()}" for name, value in point.items())


def _advise(run: Any, attributes: dict[str, Any], idata: Any) -> None:
    judged = convergence.judge(posterior(run), run.groups)
    _log.info(
        "%d evaluations (%d for tuning) in %d rounds: %d draws of each of %d chains, %s.",
        attributes["evaluations"], attributes["evaluations_tuning"], attributes["rounds"], len(run.rows),
        len(run.starts), convergence.describe(judged),
    )  # fmt: skip
    if "failed_where" in attributes:
        _log.warning(
            "%d of %d evaluations were NaN or +inf, %s", attributes["failed"], attributes["evaluations"],
            attributes["failed_where"],
        )  # fmt: skip
    if "missed_where" in attributes:
        _log.warning("%s See pk.report(idata).", advice.missed(attributes))
    if "ends_elsewhere" in attributes:
        _log.warning(
            "There may be another mode, from which no chain draws, at %s. See pk.report(idata).",
            attributes["ends_elsewhere"],
        )
    if attributes["surrogate"] == "none":
        _log.warning(
            "Tuning ended before a surrogate was learned: random-walk moves did all of the work. Give more evaluations."
        )
    elif math.isnan(judged.rhat):
        _log.warning(
            "%d draws of each of %d chains are too few to judge (%d of two chains at least): give more evaluations, "
            "or fewer chains.", len(run.rows), len(run.starts), convergence.LEAST_DRAWS,
        )  # fmt: skip
    else:
        verdict = report(idata).split("\n")[0]
        if not verdict.startswith(convergence.USABLE):
            _log.warning("%s See pk.report(idata).", verdict)
