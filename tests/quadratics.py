"""Rotated, ill-conditioned normal targets, and clouds of points that a fit may have to make do with."""

import numpy as np

CLOUDS = ("draws", "local", "transient")
RATIOS = (1.0, 1e2, 1e4, 1e6)


def normal(rng, d, ratio, rotated=True, units=1.0):
    """(log density of rows (n, d), points at standard normal rows (n, d), sds): sds from 1 down to 1 / ratio."""
    sds = units * ratio ** -np.linspace(0.0, 1.0, d)
    rotation = np.linalg.qr(rng.standard_normal((d, d)))[0] if rotated else np.eye(d)
    mean = units * rng.standard_normal(d)

    def log_density(x):  # in whitened coordinates: any other formula loses the digits in question
        return -0.5 * np.square((x - mean) @ rotation / sds).sum(axis=-1) + 3.7

    return log_density, lambda z: mean + (z * sds) @ rotation.T, sds


def cloud(rng, kind, n, sds):
    """Standardised rows (n, d): draws; points within 30 of the shortest axis; a way from a log density of -1e6."""
    z = rng.standard_normal((n, len(sds)))
    if kind == "local":
        return z * np.minimum(1.0, 30.0 * sds.min() / sds)
    if kind == "transient":
        far = rng.standard_normal(len(sds))
        far *= np.sqrt(2e6) / np.linalg.norm(far)
        along = 10.0 ** np.linspace(0.0, -5.0, n)  # geometric: a climb
        return along[:, None] * far + (0.3 + along[:, None] * 30.0) * z
    return z
