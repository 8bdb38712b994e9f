"""Chains of a real step object, ours or PyMC's, its log density replaced by a compiled one that counts."""

import ast
import time
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

import pymc_kameleon
from benchmarks.basics import Counted, StoppedError, generators, nested, number


class Chain(NamedTuple):
    """One chain."""

    draws: np.ndarray  # (n, d): after tuning, unconstrained
    evaluations: int  # in all: start, arrival, tuning and draws
    arrived: int | None  # evaluations until the first value within the level
    best: float  # highest log density seen
    tuning_seconds: float  # processor time, log density included, of tuning ...
    seconds: float  # ... and of the draws


def sample(*draws: int, **options: Any):
    """``pm.sample`` with ``options`` in one process; nothing is shown, and nothing checked."""
    usual = {"cores": 1, "progressbar": False, "quiet": True, "compute_convergence_checks": False}
    return pm.sample(*draws, **(usual | options))


def walk(step, point, ravel, log_density: Counted, tune: int) -> Chain:
    """Draws of a step until the budget of ``log_density`` is spent, at most as many as that.

    Tuning ends after ``tune`` draws, or evaluations besides the start's: a step that evaluates at most once in a draw
    tunes for ``tune`` draws, as in ``pm.sample(tune=tune)``; one that evaluates more often gets fewer.
    """
    draws, begin, ended = [], time.process_time(), None
    with np.errstate(all="ignore"):  # exp of a large log ratio, for a statistic
        try:
            for n in range(int(log_density.limit)):
                if ended is None and (n == tune or log_density.evaluations > tune + 1):
                    step.stop_tuning()
                    ended = time.process_time()
                point, _ = step.step(point)
                if ended is not None:
                    draws.append(ravel(point))
        except StoppedError:
            pass
    end = time.process_time()
    kept = np.array(draws) if draws else ravel(point)[None]
    seconds = (ended or end) - begin, end - (ended or end)
    return Chain(kept, log_density.evaluations, log_density.arrived, log_density.best, *seconds)


def chains(
    posterior, step: str, seed: int, *, evaluations: int, tune: int, level: float, n_chains: int = 4
) -> list[Chain]:
    """Independent chains of ``step``, e.g. "KamiltonianStep", "KameleonStep:n_history=200" or "pm.Slice".

    From ``posterior.starts(seed, n_chains)``, with streams of their own; the start's evaluation is one more.
    """
    rngs = generators([number(posterior.name), number(step), seed], n_chains)
    begin = pymc_step if step.startswith("pm.") else own_step
    made = None if step.startswith("pm.") else compiled(posterior, step)
    found = []
    for x, rng in zip(posterior.starts(seed, n_chains), rngs, strict=True):
        log_density = Counted(posterior.log_density, evaluations + 1, level)
        parts = begin(posterior, made or step, x, rng, log_density, evaluations, tune)
        found.append(walk(*parts, log_density, tune))
    return found


def parse(step: str) -> tuple[str, dict[str, Any]]:
    """Class name and options of "Name:option=value,other=value"."""
    name, _, text = step.partition(":")
    options = {}
    for item in filter(None, text.split(",")):
        option, _, value = item.partition("=")
        try:
            options[option] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[option] = value
    return name, options


def step_class(step: str) -> type:
    name, _ = parse(step)
    module = pm if name.startswith("pm.") else pymc_kameleon
    found = getattr(module, name.removeprefix("pm."), None)
    if found is None:
        known = [n for n in dir(pymc_kameleon) if n.endswith("Step")]
        raise ValueError(f"There is no step {name!r}; there are {', '.join(known)} and PyMC's, as pm.Name.")
    return found


def compiled(posterior, step: str):
    """The step on the real model, so that it can look at variables and priors; only its evaluations are ours."""
    with posterior.model:  # its own compiled function is never called: spare its optimisation
        kind = step_class(step)
        options = {"compile_kwargs": {"mode": "FAST_COMPILE"}, **nested(kind, parse(step)[1])}
        made = kind(**options)
        # only one function of all is counted here
        return kind(learn="all", **options) if getattr(made, "by_factors", False) else made


def own_step(posterior, step, x, rng, log_density, evaluations, tune):
    """A compiled step at the beginning of a chain, its point, and what makes a vector of that."""
    step.reset_tuning()
    step.setup_chain(rng, tune, evaluations - tune)
    step.density._evaluate = log_density
    return step, posterior.to_point(x), posterior.ravel


def pymc_step(posterior, step, x, rng, log_density, evaluations=0, tune=0):
    """A new step of PyMC's on a model of the right shape: PyMC compiles its density, which is replaced."""
    with stand_in(len(x)):
        made = step_class(step)(rng=rng, **parse(step)[1])
    if hasattr(made, "delta_logp"):  # log p(proposed) - log p(current): both are evaluated
        made.delta_logp = lambda q, q0: log_density(q) - log_density(q0)
    else:
        made.logp = log_density
    return made, {"x": np.array(x)}, lambda point: np.array(point["x"])


@cache
def stand_in(dim):
    with pm.Model() as model:
        pm.Normal("x", shape=dim)
    return model
