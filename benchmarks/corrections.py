"""What misprints and old code would do: the right form beside the printed one, where that is a small computation.

Numbers for docs/corrections.md: quadrature where a density is printed wrongly, plain HMC and Metropolis (no sampler of
this package) on standard normals where a formula of a sampler is.

    python -m benchmarks.corrections           # seconds
"""

import math

import numpy as np
from scipy import integrate, stats

from benchmarks import provenance, report
from benchmarks.basics import leapfrog
from pymc_kameleon.kernels import get_kernel
from pymc_kameleon.numerics.random_features import draw_features
from pymc_kameleon.targets import Flower

SEED = 20260101
CHAINS, DRAWS = 50, 4000


def hmc_acceptance(rng, d, gradient, step=0.1, steps=20, n=2000):
    """Mean acceptance of trajectories that start in N(0, I) and follow ``gradient``, judged by that normal."""
    x, p = rng.standard_normal((2, n, d))
    energies = [
        0.5 * (np.square(x).sum(axis=1) + np.square(p).sum(axis=1)) for x, p in leapfrog(gradient, x, p, step, steps)
    ]
    return float(np.exp(np.minimum(0.0, energies[0] - energies[-1])).mean())


def metropolis(rng, d, variance):
    """(acceptance, effective draws per 1000) of N(x, variance I) on N(0, I); by the variance of the chains' means."""
    x = rng.standard_normal((CHAINS, d))
    total, accepted = np.zeros((CHAINS, d)), 0.0
    for _ in range(DRAWS):
        new = x + math.sqrt(variance) * rng.standard_normal(x.shape)
        chance = np.exp(np.minimum(0.0, 0.5 * (np.square(x) - np.square(new)).sum(axis=1)))
        move = rng.random(CHAINS) < chance
        x[move] = new[move]
        total += x
        accepted += chance.mean()
    effective = 1.0 / np.square(total / DRAWS).mean()
    return accepted / DRAWS, 1000.0 * effective / DRAWS


def flower_radius(squared):
    """Mean distance from the origin in the plane, with the residual squared in the exponent or not."""
    t = Flower()

    def moment(k):
        def density(r, theta):
            e = r - t.radius - t.amplitude * math.cos(t.frequency * theta)
            return r**k * math.exp(-(e**2 if squared else e) / (2.0 * t.width**2))

        return integrate.dblquad(density, 0.0, 2.0 * math.pi, 0.0, 60.0, epsabs=0.0, epsrel=1e-4)[0]

    return moment(2) / moment(1)


def uniform_angle():
    """E (r^2) of the flower, and of its copy with a uniform angle and a normal distance."""
    t = Flower()
    theta = np.linspace(0.0, 2.0 * math.pi, 4096, endpoint=False)
    m, s = t.radius + t.amplitude * np.cos(t.frequency * theta), t.width
    right = (m**3 + 3.0 * m * s**2).mean() / m.mean()
    return right, (m**2 + s**2).mean()


def feature_kernel(frequencies, distance):
    """The kernel at a distance along an axis that frequencies (m, d) stand for."""
    return float(np.cos(frequencies[:, 0] * distance).mean())


def matern_off_axis(rng, independent):
    """The Matern-3/2 kernel's estimate at (1, 1) from 200,000 frequencies; independent t's are the known bug."""
    n, nu = 200_000, 1.5
    z = rng.standard_normal((n, 2))
    g = rng.chisquare(2.0 * nu, (n, 2 if independent else 1))
    w = z / np.sqrt(g / (2.0 * nu))
    return float(np.cos(w.sum(axis=1)).mean())


def rows():
    rng = np.random.default_rng(SEED)
    right, wrong = flower_radius(True), flower_radius(False)
    yield "flower without its square: mean radius", right, wrong
    yield "flower by a uniform angle: E r²", *uniform_angle()
    alpha = theta = np.full(10, 10.0)
    delta = 1.0 / math.sqrt(1.0 + alpha @ alpha)
    yield (
        "skew normal with Φ(αᵀy) in place of Φ(αᵀ(y - θ)), θ = α = 10: total mass",
        1.0, 2.0 * stats.norm.cdf(alpha @ theta * delta),
    )  # fmt: skip
    along = math.sqrt(2.0 / math.pi) * np.linalg.norm(alpha) * delta
    yield "the same, normalised: shift of the mean along α", along, 0.0
    for what, of, wrong in (
        ("KMC with U = f in place of -f", " of 20 steps of 0.1", lambda x: x),
        ("A.3 with half of C (θ twice as large)", "", lambda x: -2.0 * x),
    ):
        for d in (2, 8, 20):
            pair = (hmc_acceptance(rng, d, slope) for slope in (np.negative, wrong))
            yield f"{what}, N(0, I), d = {d}: acceptance{of}", *pair
    for d in (2, 8, 50):
        good, bad = metropolis(rng, d, 2.38**2 / d), metropolis(rng, d, 2.38 / math.sqrt(d))
        yield f"covariance 2.38/√d in place of 2.38²/d, d = {d}: acceptance", good[0], bad[0]
        yield f"the same: effective draws per 1000, N(0, I), d = {d}", good[1], bad[1]
    l = 13.9
    w = draw_features(rng, get_kernel("gaussian"), 1, 200_000, l, "sincos").frequencies
    yield (
        f"frequencies N(0, I/l) in place of N(0, I/l²), l = {l}: the kernel at distance l",
        feature_kernel(w, l), feature_kernel(w * math.sqrt(l), l),
    )  # fmt: skip
    sigma = 0.05
    w = rng.standard_normal((200_000, 1))
    yield (
        f"frequencies N(0, σ²) in place of N(0, 2σ), exp(-σr²), σ = {sigma}: the kernel at r = 1/√(2σ)",
        *(feature_kernel(w * scale, 1.0 / math.sqrt(2.0 * sigma)) for scale in (math.sqrt(2.0 * sigma), sigma)),
    )
    r = math.sqrt(2.0) * math.sqrt(3.0)
    exact = (1.0 + r) * math.exp(-r)
    yield ("Matérn-3/2 frequencies as independent t's: the kernel at (1, 1)", exact, matern_off_axis(rng, True))
    yield "the same from a multivariate t", exact, matern_off_axis(rng, False)


def page(options):
    lines = [[what, report.digits(right), report.digits(wrong)] for what, right, wrong in rows()]
    table = report.table(["what", "right form", "as printed or coded"], lines)
    return report.page("corrections", globals() | locals())


if __name__ == "__main__":
    provenance.command("corrections", __doc__, page)
