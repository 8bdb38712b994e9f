"""KMC's acceptance by dimension and number of points, from the origin (Strathmann et al., 2015, figure 2).

n exact draws of N(0, I) in d dimensions, KMC finite (n = m) or lite fitted to them without a base density as in the
paper, and 100 leapfrog trajectories of time pi / 2 from the origin, judged by the true density: the heat map, and its
slices along d and along n. Lengthscale and lambda are by held-out score, and, with finite too, the lengthscale is the
median distance: the search has 200 features, which in many dimensions choose another lengthscale than 2,000 need.

Beside it HMC with the true gradient, and KAMH with the same n = 2,000 points in its paper's settings, its nu such that
23.4 % of its proposals from the origin are accepted: what differs is how far these go. "Distance" is the root mean
square of the accepted moves, refused ones as zeros, over sqrt(d): that of an independent draw is 1.

    python -m benchmarks.papers.trajectories           # ten minutes of processor time
"""

import math

import numpy as np

from benchmarks import provenance, report
from benchmarks.basics import estimate, generators, leapfrog
from pymc_kameleon.kernels import get_kernel, median_distance
from pymc_kameleon.numerics.normal_steps import draw_step, log_step_density
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.surrogates.scores import choose

SEED, TRIALS, STEPS = 20260306, 100, 16
SIZES = (100, 200, 500, 1000, 2000)
DIMENSIONS = (2, 4, 8, 16, 32, 64, 100)
FITS = {100: 100, 200: 100, 500: 50, 1000: 20, 2000: 10}  # a hundred trials over so many surrogates
KINDS = ("finite, median", "finite, held out", "lite, held out")


def fitted(rng, kind: str, points: np.ndarray) -> choose.Fit:
    surrogate, how = kind.split(", ")
    n = len(points)
    recipe = choose.Recipe(
        surrogate=surrogate, kernel=get_kernel("gaussian"), embedding="cos", n_history=n, n_features=n,
        lengthscale=median_distance(points) if how == "median" else None, regularization=None, isotropic=True,
        base_scale=math.inf,
    )  # fmt: skip
    return choose.fit(rng, recipe, points)


def trajectories(rng, kind: str, dim: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Acceptance probabilities of the trials and the squared lengths of their moves, (fits, trials of each)."""
    fits = FITS[n]
    chance, squares = np.zeros((2, fits, TRIALS // fits))
    for row in range(fits):
        surrogate = fitted(rng, kind, rng.standard_normal((n, dim))).surrogate
        for k in range(TRIALS // fits):
            p = rng.standard_normal(dim)
            end, turned, inside = choose.leapfrog(np.zeros(dim), p, surrogate, 0.5 * math.pi / STEPS, STEPS)
            if inside:
                chance[row, k] = math.exp(min(0.0, 0.5 * (p @ p - end @ end - turned @ turned)))
                squares[row, k] = end @ end
    return chance, squares


def of_hmc(rng, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """The same with the true gradient."""
    p = rng.standard_normal((TRIALS, dim))
    *_, (x, momentum) = leapfrog(np.negative, np.zeros_like(p), p, 0.5 * math.pi / STEPS, STEPS)
    end = np.square(x).sum(axis=1)
    return np.exp(np.minimum(0.0, 0.5 * (np.square(p).sum(axis=1) - end - np.square(momentum).sum(axis=1)))), end


def of_kamh(rng, dim: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """KAMH's proposals from the origin with n points, nu by bisection."""
    sampler = Kameleon(**{**Kameleon.presets["paper"], "n_history": n})
    origin, gamma = np.zeros(dim), sampler.gamma
    state = sampler.init(rng, origin)
    model = sampler.learn(rng, state, rng.standard_normal((n, dim)))
    here, normals = sampler.covariance(model, origin), rng.standard_normal((TRIALS, dim))

    def proposals(nu):
        found = []
        for z in normals:
            delta, forward = draw_step(here, gamma, nu, z)
            reverse = log_step_density(delta, sampler.covariance(model, delta), gamma, nu)
            found.append((math.exp(min(0.0, -0.5 * delta @ delta + reverse - forward)), delta @ delta))
        return np.array(found).T

    low, high = -30.0, 30.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if proposals(math.exp(middle))[0].mean() > 0.234 else (low, middle)
    chance, squares = proposals(math.exp(low))
    return chance, squares


def distance(chance, squares, dim):
    return math.sqrt((chance * squares).mean() / dim)


def measure():
    """Means, standard errors over the fits and distances, each (kinds, dimensions, sizes)."""
    shape = len(KINDS), len(DIMENSIONS), len(SIZES)
    mean, error, far = np.empty((3, *shape))
    for (k, i, j), rng in zip(np.ndindex(shape), generators(SEED, math.prod(shape)), strict=True):
        found, squares = trajectories(rng, KINDS[k], DIMENSIONS[i], SIZES[j])
        mean[k, i, j], error[k, i, j] = estimate(found.mean(axis=1))
        far[k, i, j] = distance(found, squares, DIMENSIONS[i])
        if j == len(SIZES) - 1:
            print(KINDS[k], DIMENSIONS[i], np.round(mean[k, i], 2), flush=True)
    return mean, error, far


def page(options) -> str:
    mean, error, far = measure()
    rng, rivals, lines = np.random.default_rng(SEED), [], []
    for i, dim in enumerate(DIMENSIONS):
        row = [dim]
        for chance, squares in (of_hmc(rng, dim), of_kamh(rng, dim, SIZES[-1])):
            row += [f"{chance.mean():.2f}", f"{distance(chance, squares, dim):.2f}"]
        for k in range(len(KINDS)):
            row += [f"{mean[k, i, -1]:.2f}", f"{far[k, i, -1]:.2f}"]
        rivals.append(row)
    for k, kind in enumerate(KINDS):
        for i, dim in enumerate(DIMENSIONS):
            cells = [f"{mean[k, i, j]:.2f} ± {error[k, i, j]:.2f}" for j in range(len(SIZES))]
            lines.append([f"KMC {kind}", dim, *cells])
    heads = [f"{name}: {what}" for name in ("HMC", "KAMH", *KINDS) for what in ("acceptance", "distance")]
    fits, most = ", ".join(map(str, FITS.values())), SIZES[-1]
    by_dimension = report.table(["d", *heads], rivals, left=0)
    by_both = report.table(["surrogate", "d", *(f"n = {n}" for n in SIZES)], lines)
    return report.page("paper_trajectories", globals() | locals())


if __name__ == "__main__":
    provenance.command("paper_trajectories", __doc__, page)
