"""What nearly every benchmark needs, whichever code it measures: independent streams, measures of draws, versions.

Nothing here imports the package, so that a result depends on the package only through what its benchmark runs.
"""

import platform
from importlib.metadata import version

import numpy as np


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
