"""Weights between modes: chains that learn together, before and after they know of modes.

Three posteriors whose modes no chain's own moves connect, as PyMC models:

- ``apart``: two normal modes in 8 dimensions, 20 sds apart, with weights .8 and .2, unlike covariances, correlated;
- ``alias``: the radial velocities of a star with one planet, seen once a night, so that the orbit's frequency f and
  1 / day - f fit about equally; frequency, two amplitudes, offset and the log of the noise. Starts at the two highest
  peaks of the periodogram, as is usual. Truth by quadrature over frequency and noise, the amplitudes integrated out;
- ``labels 2``, ``labels 3``: mixtures of two and three normal components without an order, two and six modes of equal
  weight.

A cell is one run of ``pk.sample(max_evaluations=..., chains=16)``. Told is the weight of one mode (the mean over draws)
beside the truth, its error in units of sqrt(w (1 - w)), effective draws and R-hat of the worst parameter.

    python -m benchmarks.modes            # everything: --target, --total, --seeds; --smc for pm.sample_smc
    python -m benchmarks.modes --table    # the table again
"""

import math

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import logsumexp

# --- apart ------------------------------------------------------------------------------------------

DIM, DISTANCE, WEIGHTS, PRIOR_SD = 8, 20.0, (0.8, 0.2), 10.0


def components():
    """Means (2, d) and covariances (2, d, d): each 20 of its sds from the other's mean, at least."""
    rng = np.random.default_rng(8)
    sds = np.array([np.linspace(0.5, 2.0, DIM), np.linspace(1.5, 0.4, DIM)])
    covariances = []
    for sd in sds:
        q, _ = np.linalg.qr(rng.standard_normal((DIM, DIM)))
        root = q * np.sqrt(np.geomspace(0.1, 2.0, DIM))
        correlation = root @ root.T
        scale = np.sqrt(np.diag(correlation))
        covariances.append(correlation / np.outer(scale, scale) * np.outer(sd, sd))
    direction = rng.choice([-1.0, 1.0], DIM) * sds.mean(axis=0)
    away = max(DISTANCE / np.sqrt(direction @ np.linalg.solve(c, direction)) for c in covariances)
    return np.array([-0.5, 0.5])[:, None] * away * direction, np.array(covariances)


def apart():
    """Exactly the mixture: the prior is divided out of the likelihood."""
    means, covariances = components()
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, PRIOR_SD, shape=DIM)
        terms = []
        for weight, mean, covariance in zip(WEIGHTS, means, covariances, strict=True):
            inverse = np.linalg.inv(np.linalg.cholesky(covariance))
            z = pt.dot(inverse, x - mean)
            terms.append(math.log(weight) + np.log(np.diag(inverse)).sum() - 0.5 * pt.sum(z**2))
        pm.Potential(
            "likelihood", pt.logsumexp(pt.stack(terms)) + 0.5 * pt.sum((x / PRIOR_SD) ** 2)
        )
    normal = (means[1] - means[0]) / np.linalg.norm(means[1] - means[0])

    def is_first(posterior):
        return posterior["x"].values @ normal < 0.0

    return model, is_first, WEIGHTS[0], "jitter"


# --- alias ------------------------------------------------------------------------------------------

SPREAD = 10.0  # prior sd of amplitudes and offset, m/s
NIGHTS = 30


def velocities():
    """Times (days) and velocities (m/s) of a planet of 2.9 days, about once a night and never by day."""
    rng = np.random.default_rng(ALIAS_SEED)
    nights = np.sort(rng.choice(60, NIGHTS, replace=False))
    t = nights + 0.06 * rng.standard_normal(NIGHTS)
    v = 4.0 * np.cos(2.0 * np.pi * t / 2.9 + 1.0) + 1.0 + 2.5 * rng.standard_normal(NIGHTS)
    return t, v


ALIAS_SEED = 10
NOISE = (1.0, 0.5)  # prior mean and sd of its log
FREQUENCIES = (0.02, 0.98)  # 1/day


def evidence(f, log_noise):
    """Log marginal likelihood of a frequency and a noise, amplitudes and offset integrated out, and the prior's."""
    t, v = velocities()
    phase = 2.0 * np.pi * f * t
    design = np.column_stack([np.cos(phase), np.sin(phase), np.ones_like(t)])
    covariance = SPREAD**2 * design @ design.T + math.exp(2.0 * log_noise) * np.eye(len(t))
    factor = np.linalg.cholesky(covariance)
    z = np.linalg.solve(factor, v)
    prior = -0.5 * ((log_noise - NOISE[0]) / NOISE[1]) ** 2
    return -0.5 * z @ z - np.log(np.diag(factor)).sum() + prior


def periodogram(step=2e-4):
    """Frequencies, and the log marginal likelihood of each."""
    f = np.arange(FREQUENCIES[0], FREQUENCIES[1], step)
    log_noise = np.linspace(NOISE[0] - 1.0, NOISE[0] + 1.0, 21)
    return f, np.array([logsumexp([evidence(a, b) for b in log_noise]) for a in f])


def peak(f, t, v) -> dict:
    """A peak of the periodogram as a start, with its amplitudes by least squares."""
    phase = 2.0 * np.pi * f * t
    design = np.column_stack([np.cos(phase), np.sin(phase), np.ones_like(t)])
    fitted = np.linalg.lstsq(design, v)[0]
    log_noise = float(np.log(np.std(v - design @ fitted)))
    return dict(
        zip(
            ("frequency", "a", "b", "offset", "log_noise"),
            (f, *map(float, fitted), log_noise),
            strict=True,
        )
    )


def alias():
    """Two peaks of the periodogram and their sidelobes."""
    t, v = velocities()
    f, values = periodogram()
    weights = np.exp(values - logsumexp(values))
    low = f < 0.5
    tops = [float(f[part][np.argmax(values[part])]) for part in (low, ~low)]
    with pm.Model() as model:
        frequency = pm.Uniform("frequency", *FREQUENCIES)
        a, b, offset = (pm.Normal(name, 0.0, SPREAD) for name in ("a", "b", "offset"))
        log_noise = pm.Normal("log_noise", *NOISE)
        phase = 2.0 * np.pi * frequency * t
        mean = a * pt.cos(phase) + b * pt.sin(phase) + offset
        pm.Normal("v", mean, pt.exp(log_noise), observed=v)
    found = [peak(top, t, v) for top in tops]
    starts = [found[k // 4 % 2] for k in range(16)]  # four climbs, each for a group of chains

    def is_first(posterior):
        return posterior["frequency"].values < 0.5

    return model, is_first, float(weights[low].sum()), starts


# --- labels -----------------------------------------------------------------------------------------


def labels(components: int):
    """Normal components of unknown means, sds and shares, in no order."""
    rng = np.random.default_rng(5)
    means = np.array([-3.0, 2.0, 7.0])[:components]
    which = rng.integers(components, size=60 * components)
    data = means[which] + np.array([1.0, 0.7, 1.2])[which] * rng.standard_normal(len(which))
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 5.0, shape=components)
        log_sd = pm.Normal("log_sd", 0.0, 0.5, shape=components)
        logit = pm.Normal("logit", 0.0, 1.0, shape=components - 1)
        shares = pm.math.log_softmax(pt.concatenate([[0.0], logit]), axis=0)
        z = (data[:, None] - mu) / pt.exp(log_sd)
        pm.Potential("likelihood", pt.sum(pt.logsumexp(shares - 0.5 * z**2 - log_sd, axis=1)))

    def is_first(posterior):
        m = posterior["mu"].values
        return (np.diff(m, axis=-1) > 0.0).all(axis=-1)

    return model, is_first, 1.0 / math.factorial(components), "jitter"
