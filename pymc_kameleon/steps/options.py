"""The options of a step: those that every step takes, presets, misspelt names, and what is stored of them."""

import difflib
import hashlib
import inspect
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal, TypedDict

import numpy as np
import pymc as pm
from pymc.exceptions import SamplingError
from pymc.util import get_value_vars_from_user_vars

from pymc_kameleon.numerics.checks import count
from pymc_kameleon.samplers.option_types import check_types
from pymc_kameleon.samplers.schedule import Scheduled, ScheduleName
from pymc_kameleon.samplers.screened import Screened
from pymc_kameleon.samplers.seam import Sampler
from pymc_kameleon.steps.noise.noisy_factors import names
from pymc_kameleon.steps.pytensor_internals import mend
from pymc_kameleon.steps.told import advice


class CommonOptions(TypedDict, total=False):
    """What every step takes, see :class:`~pymc_kameleon.steps.base.KernelStep`; for editors, which complete these."""

    tune: int | None
    parametrization: Literal["auto", "model"] | None
    preset: Literal["paper"] | None
    model: pm.Model | None
    rng: Any
    initial_point: dict[str, np.ndarray] | None
    compile_kwargs: dict[str, Any] | None
    blocked: bool
    correlation: float | None
    refresh_blocks: int | None
    arrival: bool | None
    learning_draws: int | None


def continuous(step: str, vars, model) -> list:
    """The value variables that ``step`` is to sample: ``vars``, or all continuous ones of the model."""
    mend(model)
    if vars is None:
        vars = model.continuous_value_vars
    else:
        if named := [v for v in vars if isinstance(v, str)]:
            there = f": model[{named[0]!r}] in place of {named[0]!r}"
            if named[0] not in model.named_vars:
                there = f"; the model has no {named[0]!r}, but {names(model.free_RVs)}"
            raise TypeError(f"vars takes variables, not their names{there}.")
        vars = get_value_vars_from_user_vars(vars, model)
        twice = {v.name for v in vars if vars.count(v) > 1}
        if twice:
            raise ValueError(f"vars has {', '.join(sorted(twice))} more than once.")
    if not vars:
        raise ValueError(f"{step} found no continuous variable to sample.")
    discrete = [v for v in vars if v.dtype not in pm.vartypes.continuous_types]
    if discrete:
        raise ValueError(
            f"{step} samples continuous variables only; {names(discrete)} is discrete. Leave it "
            "out of vars and pm.sample gives it a step of its own."
        )
    return list(vars)


def full_point(model, given) -> dict[str, np.ndarray]:
    """The point ``given``, or the model's initial one: arrays of the value variables' shapes."""
    point = model.initial_point() if given is None else given
    missing = [v.name for v in model.value_vars if v.name not in point]
    if missing:
        raise ValueError(
            f"initial_point has no {', '.join(missing)}; it has {', '.join(point) or 'nothing'}, and takes the value "
            "variables, as model.initial_point() gives them."
        )
    point = {name: np.asarray(value) for name, value in point.items()}
    for v in model.value_vars:
        shape, wanted = point[v.name].shape, v.type.shape
        if len(shape) != len(wanted) or any(w not in (None, s) for s, w in zip(shape, wanted, strict=True)):
            raise ValueError(f"initial_point has {v.name} of shape {shape}; the model's has {wanted}.")
        point[v.name] = point[v.name].astype(v.dtype, copy=False)  # of integers, draws would be some
    return point


def check_shapes(step: Any, point: dict[str, np.ndarray]) -> None:
    """Refuse to sample from ``point`` if variables have other shapes than when ``step`` was built."""
    now = {name: np.shape(point[name]) for name in step.shapes}
    if now != step.shapes:
        raise SamplingError(advice.other_shapes(type(step).__name__, step.shapes, now))


def choose(kind: Any, preset: str | None, options: dict[str, Any]) -> tuple[str, dict, int, Any]:
    """Which algorithm a step of the class ``kind`` runs, and with what; refuses options that it does not have.

    The variant; the preset's options with the given ones on top; how many transitions on a surrogate a draw makes; when
    to learn anew.
    """
    variant = options.pop(kind.chooses, next(iter(kind.variants)))
    if kind.chooses:
        words: Any = Literal[tuple(kind.variants)]
        check_types({kind.chooses: variant}, {kind.chooses: words})
    algorithm, presets = kind.variants[variant], kind.variants[variant].presets
    known = algorithm.defaults()

    def unknown(name, variants):
        chosen = f" with {kind.chooses}={variant!r}" if kind.chooses else ""
        elsewhere = f"{kind.chooses}={' or '.join(map(repr, variants))}" if variants else ""
        return unknown_option(name, f"{kind.__name__}{chosen}", known, elsewhere)

    screen, schedule = 0, None
    if kind.screens is not None:
        screen = options.pop("screen", 0 if preset == "paper" else kind.screens)
        check_types({"screen": screen}, {"screen": int})
        count(0, screen=screen)
    if kind.schedules and (schedule := options.pop("schedule", None)) is not None:
        if variant not in kind.schedules:
            raise unknown("schedule", kind.schedules)
        check_types({"schedule": schedule}, {"schedule": ScheduleName | Callable | None})
    if preset is not None and preset not in presets:
        raise ValueError(f"preset must be None{''.join(f' or {p!r}' for p in presets)}, got {preset!r}.")
    for name in [n for n in options if n not in known]:
        having = {v: m for v, m in kind.variants.items() if name in m.defaults()}
        # at its default an option of another algorithm asks for nothing
        if described(options.pop(name)) not in [described(m.defaults()[name]) for m in having.values()]:
            raise unknown(name, having)
    return variant, {**presets.get(preset, {}), **options}, screen, schedule


def build(algorithm: Any, options: dict[str, Any], screen: int, schedule: Any) -> Sampler:
    """The sampler of what :func:`choose` returns."""
    sampler = algorithm(**options)
    if schedule is not None:
        sampler = Scheduled(inner=sampler, schedule=schedule)
    return Screened(inner=sampler, transitions=screen) if screen else sampler


def unknown_option(name: str, step: str, known, elsewhere: str) -> TypeError:
    """The error for an option that ``step``, with the algorithm that it was told to use, does not know.

    ``elsewhere``: the choice of another algorithm with which it exists, "keyword='value'"; empty if there is none.
    """
    listed = ", ".join(sorted(known))
    if elsewhere:
        return TypeError(f"{name} is an option of {elsewhere}; {step} has {listed}.")
    close = difflib.get_close_matches(name, known, 1)
    guess = f" (did you mean {close[0]!r}?)" if close else ""
    return TypeError(f"{step} has no option {name!r}{guess}; it has {listed}.")


def described(value):
    """An option's value as numbers, text and tuples, equal for equal options in every process."""
    if isinstance(value, np.ndarray) and value.ndim:
        digest = hashlib.blake2b(np.ascontiguousarray(value).data, digest_size=8).hexdigest()
        return f"array {value.dtype} {value.shape} {digest}"
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.item()
    if isinstance(value, float) and math.isnan(value):
        return "nan"  # which is equal to itself
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, dict):
        return {str(name): described(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(described(part) for part in value)
    if inspect.isroutine(value) or isinstance(value, (type, ModuleType)):
        return getattr(value, "__qualname__", value.__name__)
    return type(value).__qualname__, described(getattr(value, "__dict__", {}))
