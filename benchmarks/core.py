"""What the benchmarks share: one chain of one algorithm, without PyMC around it, and its measures.

:func:`run_chain` makes the chain by :mod:`pymc_kameleon.samplers.chain`, as
:class:`pymc_kameleon.steps.KernelStep` does on a log density without noise, so that what is measured here is what a
user gets.

``python -m benchmarks.core_check`` checks that against ``pm.sample``.
"""

import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from pymc_kameleon.diagnostics import CountingLogDensity
from pymc_kameleon.samplers.arrival import search as arrival_search
from pymc_kameleon.samplers.arrival.phase import default_budget
from pymc_kameleon.samplers.chain import evaluation, freeze, transition
from pymc_kameleon.samplers.seam import Known, Point, Sampler
from pymc_kameleon.targets import Target


class Chain(NamedTuple):
    """One chain.

    Attributes
    ----------
    draws : ndarray of shape (n, d)
        After tuning.
    acceptance : float
        Mean acceptance probability of those draws.
    evaluations : int
        Log-density evaluations in all: start, tuning and draws.
    tuning_seconds, seconds : float
        Processor time of tuning and of the draws.
    state : tuple
        The algorithm's, at the end.
    """

    draws: np.ndarray
    acceptance: float
    evaluations: int
    tuning_seconds: float
    seconds: float
    state: Any


class Chains(NamedTuple):
    """Independent chains of one algorithm, stacked: every attribute of :class:`Chain` by chain."""

    draws: np.ndarray  # (chains, n, d)
    acceptance: np.ndarray  # (chains,)
    evaluations: np.ndarray
    tuning_seconds: np.ndarray
    seconds: np.ndarray
    states: list


def run_chain(
    algorithm: Callable[..., Sampler],
    log_density: Callable[[np.ndarray], float],
    x: np.ndarray,
    rng: np.random.Generator,
    *,
    tune: int,
    draws: int,
    arrive: bool = False,
    **options: Any,
) -> Chain:
    """Run ``algorithm`` from ``x`` of shape (d,) for ``tune`` adaptive draws and ``draws`` frozen ones.

    Parameters
    ----------
    algorithm : type
        The sampler's class, or what else makes a sampler of options.
    log_density : callable
        From a point to a float.
    arrive : bool
        As the steps' option ``arrival``, in units of 1: they take the prior's.
    options
        The algorithm's.
    """
    log_density = CountingLogDensity(log_density)
    walk = _Walk(algorithm, log_density, np.array(x, dtype=float), rng, options)
    if arrive:
        walk.set_out()
    begin = time.process_time()
    for _ in range(tune):
        walk.step(tuning=True)
    walk.freeze()
    half_time = time.process_time()
    kept, probability = np.empty((draws, len(x))), 0.0
    for n in range(draws):
        probability += walk.step(tuning=False)
        kept[n] = walk.here.position
    end = time.process_time()
    acceptance = probability / max(draws, 1)
    seconds = half_time - begin, end - half_time
    return Chain(kept, acceptance, log_density.evaluations, *seconds, walk.state)


class _Walk:
    """The current point, the retained log density there, and the sampler's state."""

    def __init__(self, algorithm, log_density, x, rng, options):
        self.sampler = algorithm(**options)
        self.log_density, self.rng, self.tune = log_density, rng, options.get("tune")
        self.evaluate = evaluation(log_density)
        self.here, self.arrival = Point(x, log_density(x)), None
        self.state = self.sampler.place(self.sampler.init(rng, x), self.here)

    def set_out(self, scale=1.0, start=None, looks=None):
        """Let the first tuning draws bring the chain to the typical set; see ``KernelStep``."""
        budget = default_budget(len(self.here.position))
        if self.tune is not None:
            budget = max(1, min(budget, int(0.4 * self.tune)))
        self.arrival = arrival_search.init(
            *self.here[:2], scale=scale, budget=budget, start=start, looks=looks
        )

    def _approach(self):
        state = self.arrival
        point = arrival_search.propose(self.rng, state)
        self.arrival = arrival_search.tell(self.rng, state, point, self.log_density(point))
        self._arrive()

    def _arrive(self):
        state = self.arrival
        row = state.current
        self.here = Point(state.positions[row].copy(), float(state.log_densities[row]))
        if state.done:
            self.here, self.arrival = Point(state.position.copy(), state.log_density), None
            known = Known(spent=state.evaluations - 1, **arrival_search.learned(state))
            state = self.sampler.init(self.rng, self.here.position, known)
            self.state = self.sampler.place(state, self.here)

    def freeze(self):
        if self.arrival is not None:
            self.arrival = arrival_search.stop(self.arrival)
            self._arrive()
        self.state = freeze(self.sampler, self.here, self.state)

    def step(self, tuning):
        """One draw; returns its acceptance probability."""
        if self.arrival is not None:
            self._approach()
            return 0.0
        self.here, self.state, _, _, probability, _ = transition(
            self.rng, self.sampler, self.here, self.state, self.evaluate, tuning=tuning
        )
        return probability


def run_chains(
    algorithm: Callable[..., Sampler],
    target: Target,
    *,
    chains: int,
    tune: int,
    draws: int,
    seed: int,
    starts: np.ndarray | None = None,
    **options: Any,
) -> Chains:
    """Independent chains, from the target's initial point or from ``starts`` of shape (chains, d)."""
    if starts is None:
        starts = np.tile(target.initial_point, (chains, 1))
    return stack(
        [
            run_chain(
                algorithm, target.numba_log_density, x, rng, tune=tune, draws=draws, **options
            )
            for x, rng in zip(starts, generators(seed, chains), strict=True)
        ]
    )


def stack(chains: list[Chain]) -> Chains:
    """Chains that were run one at a time."""
    *arrays, states = zip(*chains, strict=True)
    return Chains(*map(np.array, arrays), list(states))


def generators(seed: int, n: int) -> list[np.random.Generator]:
    """Independent streams; the first ones are the same whatever ``n``."""
    return [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(n)]


def bulk_ess(draws: np.ndarray) -> np.ndarray:
    """ArviZ's bulk effective sample size of every coordinate, over all chains together, shape (d,).

    Coordinates that never moved have none.
    """
    import arviz as az

    ess = np.asarray(az.ess({"x": draws}, method="bulk")["x"].values)
    return np.where(np.ptp(draws, axis=(0, 1)) == 0, 0.0, ess)


def autocorrelation(series: np.ndarray) -> np.ndarray:
    """Autocorrelation at lags 0, 1, ..., n - 1 along the last axis."""
    n = series.shape[-1]
    centred = series - series.mean(axis=-1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centred, 2 * n)) ** 2
    autocovariance = np.fft.irfft(spectrum)[..., :n]
    return autocovariance / autocovariance[..., :1]


def autocorrelation_time(series: np.ndarray, window: float = 5.0) -> np.ndarray:
    """Integrated autocorrelation time 1 + 2 sum of the autocorrelations, along the last axis.

    The sum stops at the first lag of ``window`` times itself (Sokal, 1989): later lags are noise.
    """
    rho = autocorrelation(series)
    times = 2.0 * np.cumsum(rho, axis=-1) - 1.0
    enough = np.arange(rho.shape[-1]) >= window * times
    first = np.where(enough.any(axis=-1), enough.argmax(axis=-1), rho.shape[-1] - 1)
    return np.take_along_axis(times, first[..., None], axis=-1)[..., 0]


def versions() -> str:
    """Python and the packages that numbers may depend on."""
    packages = ("pymc", "pytensor", "numpy", "numba", "arviz")
    return ", ".join(
        [f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in packages)]
    )
