"""Arguments of ``pk.sample``, checked before anything is evaluated, and what follows from them: plan, seed, starts."""

import logging
from collections.abc import Iterable
from difflib import get_close_matches
from importlib.metadata import version
from inspect import signature
from typing import Any

import numpy as np
import pymc as pm
from pymc.initial_point import make_initial_point_fn

from pymc_kameleon.samplers.option_types import check_types
from pymc_kameleon.samplers.pooled.plan import Plan, automatic
from pymc_kameleon.sampling import workers
from pymc_kameleon.steps import KamiltonianStep
from pymc_kameleon.steps.batched import batched_log_density
from pymc_kameleon.steps.factors.factored_density import FactoredDensity
from pymc_kameleon.steps.log_density import LogDensity
from pymc_kameleon.steps.options import check_shapes
from pymc_kameleon.steps.prior_scale import elsewhere, finite_or_zero, jitter, look_at_prior
from pymc_kameleon.steps.told import advice
from pymc_kameleon.surrogates.values.regression import affordable

_log = logging.getLogger("pymc.kameleon")


_INSTEAD = {
    "start": "it is initvals=, as in pm.sample",
    **dict.fromkeys(
        ("cores", "mp_ctx", "blas_cores"), "give it workers: executor=concurrent.futures.ProcessPoolExecutor(4)"
    ),
    "compile_kwargs": "give them to its step: step=KamiltonianStep(compile_kwargs=...)",
    "var_names": "it returns all variables; take those that you want from idata['posterior']",
    "callback": "end it by target_ess=, max_evaluations= or Ctrl-C, all of which return the draws so far",
    **dict.fromkeys(("trace", "backend"), "checkpoint= keeps on disk what is evaluated"),
}


def unknown(name: str, ours: Iterable[str]) -> TypeError:
    """The error for an argument that is none of ``ours``."""
    what = _INSTEAD.get(name)
    if what is None and name in (*signature(pm.sample).parameters, "nuts", "target_accept"):
        what = "it is for pm.sample, whose chains are independent and may have other steps"
    elif what is None:
        close = get_close_matches(name, ours, 1)
        what = f"did you mean {close[0]}=?" if close else f"it has {', '.join(ours)}"
    return TypeError(f"pk.sample has no argument {name}: {what}{'' if what.endswith('?') else '.'}")


def check(**given: tuple[Any, Any]) -> None:
    """Types, before anything is evaluated: what is wrong with the end of a run would lose all of it."""
    values, kinds = ({name: pair[i] for name, pair in given.items()} for i in (0, 1))
    check_types(values, kinds)
    known = [n for n in signature(pm.to_inference_data).parameters if n not in ("trace", "model", "save_warmup")]
    wrong = sorted(set(values["idata_kwargs"] or {}) - set(known))
    if wrong:
        raise TypeError(f"idata_kwargs has {', '.join(wrong)}; pm.to_inference_data has {', '.join(known)}.")


def check_control_variates(density: LogDensity) -> None:
    """Refuse control variates under noise."""
    if density.noisy:
        raise ValueError(
            "control_variates=True compares the surrogate with log densities, and this model's are noisy estimates."
        )


def checked_step(step: Any, model: pm.Model) -> KamiltonianStep:
    """The step, or the default one; refused where it learns nothing that chains could share."""
    if taken := {"chain", "draw"} & {v.name for v in model.unobserved_RVs}:
        raise ValueError(f"The model has a variable named {min(taken)}, as ArviZ names a dimension: rename it.")
    if step is None:
        _check_all_are_sampled(model, model.continuous_value_vars)  # before a step says what it learns
        step = KamiltonianStep(model=model)
    if not (isinstance(step, KamiltonianStep) and step.variant == "values"):
        if isinstance(step, type):
            got = f"the class {step.__name__} itself, without parentheses"
        else:
            got = type(step).__name__ + (f" with {step.variant!r}" if isinstance(step, KamiltonianStep) else "")
        raise ValueError(
            f"step must be a KamiltonianStep with surrogate='values', got {got}: in a budget's few draws the others "
            "learn next to nothing to propose by, which they learn from positions. Leave step= out, or take "
            "pm.sample(step=...)."
        )
    if step.model is not model:
        raise ValueError("step is of another model. Build it in this one: KamiltonianStep(model=model).")
    step.check_model()
    if step.density.suspects:
        _log.warning("pk.sample: %s", advice.HIDDEN_NOISE.format(", ".join(step.density.suspects)))
    if step.known_points is not None:
        raise ValueError("Give evaluations= to pk.sample, not to its step: all chains learn from them.")
    if step.density.auxiliary:
        raise ValueError(
            "pk.sample has fresh noise for every estimate: no correlation=, no refresh_blocks=. Leave them out, or "
            "take pm.sample(step=...), whose chains keep theirs."
        )
    step.density.work = step.density.given_work  # it may have tuned another, in a chain of its own
    if step.density.given_work:
        _log.info(
            "pk.sample takes the estimator's work as given, %s, where pm.sample tunes it.",
            ", ".join(map(str, step.density.given_work)),
        )
    if step.learning_draws is not None:
        raise ValueError(f"pk.sample tunes for as long as its tune= says: no learning_draws={step.learning_draws}.")
    if not step.arrives:
        raise ValueError(
            "pk.sample's chains climb by themselves: no arrival=False. Begin where you know that the posterior is, by "
            "initvals= or evaluations=."
        )
    if step.declared_tune is not None:
        _log.info("pk.sample tunes for as long as its tune= says, whatever its step's, %d.", step.declared_tune)
    _check_all_are_sampled(model, step.vars)
    return step


def _check_all_are_sampled(model: pm.Model, variables: Iterable[Any]) -> None:
    missing = sorted({v.name for v in model.value_vars} - {v.name for v in variables})
    if missing:
        raise ValueError(
            f"pk.sample has one step for all variables, and they have to be continuous; {', '.join(missing)} is not "
            "among the step's. Use pm.sample, with a step for each kind."
        )


def evaluator(executor: Any, model: pm.Model, step: KamiltonianStep, seed: int, timeout: float | None) -> Any:
    """Who evaluates; noise is drawn from ``seed``."""
    density = step.density
    entropy = seed if density.noise_cells() else None
    if executor is None:
        return workers.Here(density, entropy)
    if not isinstance(executor, str):
        sent = density.alone if isinstance(density, FactoredDensity) else density
        return workers.Elsewhere(sent, entropy, executor, timeout)
    if executor != "vectorized":
        raise ValueError(f'executor must be an executor or "vectorized", got {executor!r}.')
    if density.noisy:
        raise ValueError(
            'executor="vectorized" is for log densities without noise: estimates have their random streams one by '
            "one. Use an executor with workers."
        )
    if isinstance(density, FactoredDensity):
        return workers.Vectorized(density, density.batched())
    batched = batched_log_density(density.source(model), step.vars, model.initial_point(), density.compile_kwargs)
    return workers.Vectorized(density, batched)


def seed_of(random_seed: Any) -> int:
    """One number for the run, so that it can be kept with a checkpoint."""
    if isinstance(random_seed, np.random.Generator):
        return int(random_seed.integers(2**63))
    try:
        return int(np.random.SeedSequence(random_seed).generate_state(2, np.uint64)[0])
    except (TypeError, ValueError) as error:
        raise type(error)(
            "random_seed must be None, an integer of at least 0, a sequence of such, or a Generator, got "
            f"{random_seed!r}."
        ) from error


def shown(random_seed: Any) -> str:
    """What the user gave, for messages."""
    simple = random_seed is None or isinstance(random_seed, (int, np.integer, list, tuple))
    return str(random_seed) if simple else f"a {type(random_seed).__name__}"


def made_with(step: KamiltonianStep) -> dict[str, Any]:
    """What the bits of a run depend on, beside its seed and its plan."""
    return {
        "dim": step.density.dim,
        "variables": {name: list(shape) for name, shape in step.shapes.items()},
        "options": step.options,
        "versions": {name: version(name) for name in ("numpy", "scipy", "numba", "pymc", "pytensor")},
    }


def check_counts(draws: int | None, tune: int | str, chains: int, most: int | None) -> None:
    """Numbers of draws, chains and evaluations."""
    for name, value in {"draws": draws, "chains": chains, "max_evaluations": most}.items():
        if value is not None and not (isinstance(value, (int, np.integer)) and value >= 1):
            raise ValueError(f"{name} must be a positive integer, got {value!r}.")
    if not (tune == "auto" or (isinstance(tune, (int, np.integer)) and tune >= 1)):
        raise ValueError(f'tune must be "auto" or a positive integer, got {tune!r}.')
    least = 4 * chains if tune == "auto" else (int(tune) + 1) * chains
    if most is not None and most < least:
        raise ValueError(
            f"max_evaluations must be at least {least} for {chains} chains"
            f"{'' if tune == 'auto' else f' and tune={tune}'}, got {most}."
        )


def plan_of(
    draws: int | None, tune: int | str, chains: int, most: int | None, target_ess: float | None, density: LogDensity
) -> Plan:
    """How long to tune and to draw."""
    if not (isinstance(density, FactoredDensity) or affordable(density.dim)):  # theirs have few inputs each
        raise ValueError(
            f"{density.dim} dimensions are more than a surrogate of the log density can be fitted in; use pm.sample "
            "with FastKameleonStep."
        )
    fixed = None if tune == "auto" else int(tune) * chains
    if draws is None and most is None and target_ess is None:
        draws = 200  # nothing else says when to stop
    return automatic(density.dim, chains, draws=draws, tune=fixed, most=most, climb=not density.noisy)


def check_starts(initvals: Any, chains: int) -> None:
    """What ``initvals`` is; its values are checked with the model."""
    if isinstance(initvals, str):
        if initvals not in ("jitter", "prior"):
            raise ValueError(f'initvals must be "jitter", "prior", a dict or a list of dicts, got {initvals!r}.')
    elif not isinstance(initvals, dict):
        if not all(isinstance(p, dict) for p in initvals):
            raise TypeError(f"initvals must be a dict, or a list of dicts, of names and values, got {initvals!r}.")
        if len(initvals) != chains:
            raise ValueError(f"initvals has {len(initvals)} points for {chains} chains.")


def starts_of(
    model: pm.Model, step: KamiltonianStep, initvals: Any, chains: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(initial point (d,), starts (chains, d), scale (d,), draws of the prior (n, d) where looks may begin, points
    (m, d) to try where there is no density at the starts).
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2,)))
    density = step.density
    if isinstance(initvals, str):
        given = [_point(model, {}, rng)]
    else:
        points = [initvals] * chains if isinstance(initvals, dict) else initvals
        shapes = model.eval_rv_shapes()  # those of ``dims`` are not known otherwise
        given = [_point(model, p, rng, shapes) for p in points]
    check_shapes(step, given[0])
    initial = density.enter(density.ravel(given[0]))
    prior = look_at_prior(model, step.vars, given[0])
    scale, far = density.spread(prior), np.array([density.enter(x) for x in prior.draws])
    far, boxes = far[np.isfinite(far).all(axis=1)], isinstance(density, FactoredDensity)
    own = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(3,)))
    sizes, here = [np.size(given[0][v.name]) for v in step.vars], density.ravel(given[0])
    tries = elsewhere(own, prior, here, scale, sizes, len(prior.draws))
    tries = np.array([density.enter(x) for x in tries])
    tries = tries[np.isfinite(tries).all(axis=1)]
    if not isinstance(initvals, str):
        tries = tries[:0]
        far = far[:0] if boxes else far  # a solver may raise where the user has kept it from
    if isinstance(initvals, (str, dict)) and initvals != "prior":
        starts = initial + jitter(scale) * rng.uniform(-1.0, 1.0, (chains, len(initial)))
        if boxes and len(far):
            # A climb from there, with what all have learned, sees more than a look: every second chain makes one. The
            # even ones: none is a sentinel of samplers/pooled/tuning, which would stay where a vague prior has put it
            some = rng.permutation(far)[: (chains + 1) // 2]
            starts[: 2 * len(some) : 2] = some
        return initial, starts, scale, far, tries
    if initvals == "prior":
        given = [_point(model, dict.fromkeys(model.free_RVs, "prior"), rng) for _ in range(chains)]
    return initial, np.array([density.enter(density.ravel(p)) for p in given]), scale, far, tries


def _point(
    model: pm.Model, values: dict[Any, Any], rng: np.random.Generator, shapes: Any = None
) -> dict[str, np.ndarray]:
    """The model's initial point with ``values`` in the place of its own; by names, they are checked by ``shapes``."""
    names = [rv.name for rv in model.free_RVs]
    for name, value in values.items() if shapes is not None else ():
        if name not in names:
            raise ValueError(f"initvals names {name!r}; the model's variables are {', '.join(names)}.")
        value = np.asarray(value)
        if value.dtype.kind not in "biuf":
            raise TypeError(
                f"initvals has {name} = {value.tolist()!r}: a start is a number or an array of numbers. "
                'initvals="prior", for all variables, draws starts from their priors.'
            )
        if not np.isfinite(value).all():
            raise ValueError(f"initvals has {name} = {value.tolist()}, which is not finite.")
        if value.shape != shapes[name]:
            raise ValueError(
                f"initvals has {name} of shape {value.shape}; the model's has {tuple(map(int, shapes[name]))}."
            )
    improper = [rv.name for rv in model.free_RVs if "Flat" in type(rv.owner.op).__name__ and values.get(rv) == "prior"]
    if improper:
        raise ValueError(f'initvals="prior": {", ".join(improper)} cannot be drawn: flat. Give a point, or priors.')
    with model:
        function = make_initial_point_fn(model=model, overrides=dict(values), jitter_rvs=None, return_transformed=True)
    point = function(int(rng.integers(2**31)))
    for rv in model.free_RVs:
        name = model.rvs_to_values[rv].name
        if rv.name in values and not np.isfinite(point[name]).all():
            raise ValueError(f"initvals has {rv.name} = {values[rv.name]}, which is not inside of its support.")
        if rv not in values and model.rvs_to_initial_values.get(rv) is None:
            point[name] = finite_or_zero(point[name])
    return point
