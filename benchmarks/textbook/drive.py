"""Chains of a real step object, its log density replaced by a compiled one that counts."""

import ast
import time
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

import pymc_kameleon
from benchmarks import basics
from benchmarks.textbook.posterior import Posterior, key


class Chain(NamedTuple):
    """One chain.

    Attributes
    ----------
    draws : ndarray of shape (n, d)
        After tuning, unconstrained.
    evaluations : int
        In all: start, arrival, tuning and draws.
    arrived : int or None
        Evaluations until the first value within the level.
    best : float
        Highest log density seen.
    seconds : float
        Processor time of all draws, log density included.
    """

    draws: np.ndarray
    evaluations: int
    arrived: int | None
    best: float
    seconds: float


class _BudgetSpentError(Exception):
    pass


class Counting:
    """A log density that counts its calls and remembers when it first was within ``level``."""

    def __init__(self, log_density, level=np.inf, limit=np.inf):
        self.log_density, self.level, self.limit = log_density, level, limit
        self.evaluations, self.arrived, self.best = 0, None, -np.inf

    def __call__(self, x):
        """The value at ``x``."""
        if self.evaluations >= self.limit:
            raise _BudgetSpentError
        self.evaluations += 1
        value = self.log_density(x)
        if value > self.best:  # never true of NaN
            self.best = value
        if self.arrived is None and value >= self.level:
            self.arrived = self.evaluations
        return value


def chains(
    posterior: Posterior, step: str, seed: int, *, evaluations: int, tune: int, level: float, n_chains: int = 4
) -> list[Chain]:  # fmt: skip
    """Independent chains of ``step``, e.g. "KamiltonianStep", "KameleonStep:n_history=200" or "pm.Slice".

    From ``posterior.starts(seed, n_chains)``, with streams of their own. ``tune`` of the ``evaluations`` are tuning: a
    step that evaluates at most once in a draw tunes for ``tune`` draws and makes ``evaluations`` of them, as
    ``pm.sample(evaluations - tune, tune=tune)`` does; one that evaluates more often gets fewer.
    """
    rngs = basics.generators([key(posterior.name), key(step), seed], n_chains)
    log_densities = [
        Counting(posterior.log_density, level, evaluations + 1) for _ in range(n_chains)
    ]
    one = _pymc_step if step.startswith("pm.") else _own_step
    driver = one(posterior, step)
    return [
        _chain(*driver(x, rng, log_density, evaluations, tune), log_density, evaluations, tune)
        for x, rng, log_density in zip(posterior.starts(seed, n_chains), rngs, log_densities, strict=True)
    ]  # fmt: skip


def _chain(step, point, ravel, log_density, evaluations, tune):
    draws, tuning = [], True
    begin = time.process_time()
    with np.errstate(all="ignore"):  # exp of a large log ratio, for a statistic
        try:
            for n in range(evaluations):
                # The start's evaluation is the one more.
                if tuning and (n == tune or log_density.evaluations > tune + 1):
                    step.stop_tuning()
                    tuning = False
                point, _ = step.step(point)
                if not tuning:
                    draws.append(ravel(point))
        except _BudgetSpentError:
            pass
    seconds = time.process_time() - begin
    kept = np.array(draws) if draws else ravel(point)[None]
    return Chain(kept, log_density.evaluations, log_density.arrived, log_density.best, seconds)


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
    """The class that a step's description names."""
    name, _ = parse(step)
    module = pm if name.startswith("pm.") else pymc_kameleon
    found = getattr(module, name.removeprefix("pm."), None)
    if found is None:
        known = [n for n in dir(pymc_kameleon) if n.endswith("Step")]
        raise ValueError(
            f"There is no step {name!r}; there are {', '.join(known)} and PyMC's, as pm.Name."
        )
    return found


def _own_step(posterior, text):
    """The step on the real model, so that it can look at variables and priors; only its evaluations are ours."""
    options = parse(text)[1]
    if (
        step_class(text) is pymc_kameleon.KamiltonianStep
    ):  # only one function of all is counted here
        options.setdefault("learn", "all")
    with posterior.model:  # its own compiled function is never called: spare its optimisation
        step = step_class(text)(compile_kwargs={"mode": "FAST_COMPILE"}, **options)

    def driver(x, rng, log_density, evaluations, tune):
        step.reset_tuning()
        step.setup_chain(rng, tune, evaluations - tune)
        step._density._evaluate = log_density
        return step, posterior.to_point(x), posterior.ravel

    return driver


def _pymc_step(posterior, text):
    """A new step for every chain, on a model of the right shape: PyMC compiles its density, which is replaced."""

    def driver(x, rng, log_density, evaluations, tune):
        with stand_in(posterior.dim):
            step = step_class(text)(rng=rng, **parse(text)[1])
        if hasattr(step, "delta_logp"):  # log p(proposed) - log p(current): both are evaluated
            step.delta_logp = lambda q, q0: log_density(q) - log_density(q0)
        else:
            step.logp = log_density
        return step, {"x": np.array(x)}, lambda point: np.array(point["x"])

    return driver


@cache
def stand_in(dim):
    """A model of the right shape."""
    with pm.Model() as model:
        pm.Normal("x", shape=dim)
    return model
