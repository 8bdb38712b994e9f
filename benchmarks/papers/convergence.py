"""F-KAMH's covariance approaching KAMH's at the dissertation's size (Kotlicki, 2015, 5.2: figures 5.7, A.2 to A.5).

A history of 5,000 exact draws of B(0.03, 100) and of B(0.1, 100) in 8 dimensions, 250 draws of D = 10 ... 600 random
features, both embeddings: the Frobenius norm of the difference of the two covariances at eta = 1, at 15 points along
the ridge and at a far point; beside them KAMH's own covariance from a part of that history, with replacement. Both
sides by their formulas, eta^2 J^T C J and nu^2 M H M^T with nu = eta / (2 sqrt(n)), the first compared with the
package's once.

Why two slopes: the error e of the features' gradients falls as D^(-1/2). Where the kernel's own gradients g are not
zero the covariance errs by terms in g e and in e^2, D^(-1/2) and D^(-1) together; far from the history g is zero and
only e^2 is left.

    python -m benchmarks.papers.convergence           # eight minutes of processor time
"""

import math

import numpy as np

from benchmarks import provenance, report
from benchmarks.basics import estimate, generators
from pymc_kameleon.kernels import Gaussian, median_distance
from pymc_kameleon.numerics.covariance import covariance, summarise
from pymc_kameleon.numerics.random_features import draw_features, features
from pymc_kameleon.samplers.kameleon.fast import _roots
from pymc_kameleon.samplers.kameleon.feature_covariance import covariance_at
from pymc_kameleon.samplers.kameleon.local_covariance import local_covariance
from pymc_kameleon.targets import Banana

SIZES = (10, 16, 26, 42, 70, 120, 200, 350, 600)
SEED, N, DRAWS, LATE = 20260307, 5000, 250, 70
PARTS = (250, 1000, 2000, 3000)
TARGETS = {"B(0.03, 100)": Banana(0.03, 100.0, 8), "B(0.1, 100)": Banana(0.1, 100.0, 8)}
EMBEDDINGS = ("sincos", "cos")
PLACES = {"ridge": slice(0, 15), "far": slice(15, 16)}
PUBLISHED = {"ridge": -0.6, "far": -1.0}


def points(target: Banana) -> np.ndarray:
    """Fifteen along the ridge, and a far one."""
    found = np.zeros((16, 8))
    found[:15, 0] = np.linspace(-20.0, 20.0, 15)
    found[:15, 1] = target.b * (found[:15, 0] ** 2 - target.v)
    found[15, 1] = -200.0
    return found


def slopes(y, unit):
    """J at the points y (m, d), shape (m, D, d), in the order of ``features``."""
    argument = y @ unit.frequencies.T + unit.offsets
    scale = math.sqrt(2.0 / unit.n_features)
    parts = [np.cos(argument), -np.sin(argument)] if unit.sincos else [-np.sin(argument)]
    return scale * np.concatenate([p[:, :, None] * unit.frequencies for p in parts], axis=1)


def from_features(past, y, unit, precision=np.float32):
    """J^T C J at the points y, shape (m, d, d): the covariance over the history of J^T phi."""
    phi = features(past, unit)
    phi = (phi - phi.mean(axis=0)).astype(precision)
    j = slopes(y, unit).astype(precision)
    m, size, d = j.shape
    projected = phi @ np.moveaxis(j, 1, 0).reshape(size, m * d)  # (n, m d)
    projected = np.moveaxis(projected.reshape(len(past), m, d), 1, 0)
    return np.matmul(np.swapaxes(projected, 1, 2), projected) / len(past)


def disagreement() -> float:
    """Largest relative difference from the package's, in double precision."""
    target, rng = TARGETS["B(0.1, 100)"], np.random.default_rng(SEED)
    past, y = target.sample(rng, N), points(target)
    unit = draw_features(rng, Gaussian(), 8, 100, 14.0, "sincos")
    ours = from_features(past, y, unit, np.float64)
    roots = _roots(covariance(summarise(features(past, unit))), unit, 1.0)
    frequencies = np.ascontiguousarray(unit.frequencies.T)
    nothing = np.zeros((2, frequencies.shape[1]))
    package = [covariance_at(x, frequencies, unit.offsets, roots, nothing, False, 0.0, 0.0) for x in y]
    return float(np.abs(ours - package).max() / np.abs(package).max())


def measure(target, seed):
    """Squared Frobenius errors, (embeddings, sizes, draws, points); those of parts of the history, (parts, draws,
    points); exact KAMH's squared norms (points,).
    """
    first, *rest = generators(seed, 1 + DRAWS)
    past, y = target.sample(first, N), points(target)
    l = median_distance(past[:: N // 1000])
    columns = np.ascontiguousarray(past.T)

    def of_kamh(columns):
        n = columns.shape[1]
        return np.array([local_covariance(x, columns, Gaussian(), l, "none") for x in y]) / (4.0 * n)

    exact = of_kamh(columns)
    found = np.empty((len(EMBEDDINGS), len(SIZES), DRAWS, len(y)))
    parts = np.empty((len(PARTS), DRAWS, len(y)))
    for k, rng in enumerate(rest):
        for e, embedding in enumerate(EMBEDDINGS):
            for s, size in enumerate(SIZES):
                unit = draw_features(rng, Gaussian(), 8, size, l, embedding)
                error = from_features(past, y, unit) - exact
                found[e, s, k] = np.square(error).sum(axis=(1, 2))
        for p, n in enumerate(PARTS):
            part = np.ascontiguousarray(columns[:, rng.integers(N, size=n)])
            parts[p, k] = np.square(of_kamh(part) - exact).sum(axis=(1, 2))
    return found, parts, np.square(exact).sum(axis=(1, 2)), l


def slope(squares, first):
    """Least-squares slope on log-log axes from the size number ``first`` on, and its standard error."""
    log_sizes = np.log(SIZES[first:])

    def fit(part):
        return float(np.polyfit(log_sizes, 0.5 * np.log(part[first:].mean(axis=1)), 1)[0])

    return fit(squares), estimate(np.array([fit(part) for part in np.array_split(squares, 10, axis=1)]))[1]


def table(found, parts, exact):
    head = ["D", *(f"{p}, {e}" for p in PLACES for e in EMBEDDINGS)]
    pairs = [(where, e) for where in PLACES.values() for e in range(len(EMBEDDINGS))]
    lines: list[list[str]] = []
    for s, size in enumerate(SIZES):
        lines.append([str(size), *(f"{math.sqrt(found[e, s][:, w].mean()):.2e}" for w, e in pairs)])
    for label, first in (("slope", 0), (f"slope, D ≥ {LATE}", SIZES.index(LATE))):
        fits = [slope(found[e][:, :, w].mean(axis=2), first) for w, e in pairs]
        lines.append([label, *(f"{value:.2f} ± {error:.2f}" for value, error in fits)])
    lines.append(["published", *(f"{PUBLISHED[p]:g}" for p in PLACES for _ in EMBEDDINGS)])
    of_parts = [(f"KAMH, n = {n}", part.mean(axis=0)) for n, part in zip(PARTS, parts, strict=True)]
    for label, squares in [*of_parts, ("size of KAMH's", exact)]:
        lines.append([label, *(f"{math.sqrt(squares[w].mean()):.2e}" for w, _ in pairs)])
    return report.table(head, lines, left=0)


def page(options) -> str:
    found = {}
    for i, (name, target) in enumerate(TARGETS.items()):
        found[name] = measure(target, SEED + i)
        print(table(*found[name][:3]), flush=True)
    apart = disagreement()
    tables = "\n\n".join(f"## {name}, lengthscale {l:.1f}\n\n{table(*rest)}" for name, (*rest, l) in found.items())
    return report.page("paper_convergence", globals() | locals())


if __name__ == "__main__":
    provenance.command("paper_convergence", __doc__, page)
