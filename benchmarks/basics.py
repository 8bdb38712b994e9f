"""What nearly every benchmark needs, whichever code it measures: streams, a counted log density, measures of draws.

Nothing here imports the package.
"""

import math
import platform
import time
import zlib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np


def generators(seed, n: int) -> list[np.random.Generator]:
    """Independent streams; the first ones are the same whatever ``n``."""
    return [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(n)]


def number(text: str) -> int:
    """A name as a part of a seed."""
    return zlib.crc32(text.encode())


class StoppedError(Exception):
    """What ends a run from inside the log density: the budget is spent, or the time, or it has arrived."""


class Counted:
    """A log density that counts its evaluations; NaN and +inf are told as -inf.

    After ``limit`` of them, or ``seconds`` of processor time from now on, one more raises :class:`StoppedError` and is
    not made, whoever asks. ``arrived`` is the number of the first with a value of ``level``, ``best`` the highest.
    """

    def __init__(self, log_density: Callable, limit=math.inf, level: float = math.inf, seconds=math.inf):
        self.log_density, self.limit, self.level = log_density, limit, level
        self.deadline = time.process_time() + seconds
        self.evaluations, self.best = 0, -math.inf
        self.arrived: int | None = None

    def __call__(self, x) -> float:
        if self.evaluations >= self.limit or time.process_time() > self.deadline:
            raise StoppedError(f"after {self.evaluations} evaluations")
        self.evaluations += 1
        value = float(self.log_density(np.ascontiguousarray(x, dtype=float)))
        value = value if value < math.inf else -math.inf  # NaN is not less
        self.best = max(self.best, value)
        if self.arrived is None and value >= self.level:
            self.arrived = self.evaluations
        return value


def leapfrog(slope: Callable, x, p, step, steps: int):
    """Positions and momenta along ``slope``, of a log density, beginning with ``x`` and ``p``."""
    yield x, p
    force = slope(x)
    for _ in range(steps):
        p = p + 0.5 * step * force
        x = x + step * p
        force = slope(x)
        p = p + 0.5 * step * force
        yield x, p


def nested(step, options: dict) -> dict:
    """Options of a step, with those of KamiltonianStep's surrogate in an object: here they stand in one line."""
    if getattr(step, "chooses", "") != "surrogate":
        return options
    kind = step.variants[options.get("surrogate", "values")]
    own = {n: value for n, value in options.items() if n in kind.defaults() and n != "tune"}
    rest = {n: value for n, value in options.items() if n not in own}
    return {**rest, "surrogate": kind(**own)}


def bulk_ess(draws: np.ndarray) -> np.ndarray:
    """ArviZ's bulk effective sample size of every coordinate, over all chains together, shape (d,).

    Coordinates that never moved have none.
    """
    import arviz as az

    ess = np.asarray(az.ess({"x": draws}, method="bulk")["x"].values)
    return np.where(np.ptp(draws, axis=(0, 1)) == 0, 0.0, np.nan_to_num(ess))


def rhat(draws: np.ndarray) -> float:
    """The worst coordinate's; NaN if one never moved."""
    import arviz as az

    with np.errstate(all="ignore"):
        return float(np.max(az.rhat({"x": draws})["x"].values))


def estimate(values: np.ndarray) -> tuple[Any, Any]:
    """Mean of independent values, and its standard error."""
    return values.mean(axis=0), values.std(axis=0, ddof=1) / math.sqrt(len(values))


def timed(function: Callable) -> tuple[float, Any]:
    """Processor seconds of a call, and what it returns."""
    begin = time.process_time()
    found = function()
    return time.process_time() - begin, found


def geometric(values) -> float:
    """Geometric mean; NaN of nothing."""
    return math.exp(np.mean(np.log(list(values)))) if len(values) else math.nan


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


def installed(package: str) -> str | None:
    """A package and its version, None if it is not installed."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return None


def versions() -> str:
    """Python and the packages that numbers may depend on."""
    packages = ("pymc", "pytensor", "numpy", "numba", "arviz")
    return ", ".join([f"Python {platform.python_version()}", *filter(None, map(installed, packages))])
