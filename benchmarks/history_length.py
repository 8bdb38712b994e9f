"""What a surrogate from positions costs, by the length of the history that it is fitted to.

    python -m benchmarks.history_length

KMC lite by a dense factorisation and by incomplete Cholesky with conjugate gradients (Strathmann et al., 2015, A.2),
and KMC finite by a fit to the whole history and online (A.3), on the 4-d banana B(0.03, 100), whitened. One minute.
"""

import math

import numpy as np

from benchmarks import provenance, report
from benchmarks.basics import timed
from pymc_kameleon.numerics.random_features import draw_features
from pymc_kameleon.surrogates.scores import online
from pymc_kameleon.surrogates.scores.finite import fit_finite
from pymc_kameleon.surrogates.scores.lite import fit_lite
from pymc_kameleon.surrogates.scores.low_rank import fit_low_rank
from pymc_kameleon.surrogates.scores.objective import gaussian_base, gradient
from pymc_kameleon.targets import Banana

SIZES = (250, 500, 1000, 2000, 4000)
TARGET = Banana(0.03, 100.0, 4)
LENGTHSCALE, REGULARIZATION, FEATURES = 2.0, 1e-4, 300


def milliseconds(function):
    """The least time of three calls, and what the last one returned."""
    seconds, found = zip(*[timed(function) for _ in range(3)], strict=True)
    return 1000.0 * min(seconds), found[-1]


def scores(surrogate, points):
    return np.array([gradient(z, surrogate) for z in points])


def error(surrogate, exact, points):
    """Root mean square difference of the two surrogates' gradients, relative to the exact one's size."""
    reference = scores(exact, points)
    difference = scores(surrogate, points) - reference
    return math.sqrt(np.square(difference).mean() / np.square(reference).mean())


def draws(rng, n):
    x = TARGET.sample(rng, n)
    return np.ascontiguousarray((x - TARGET.mean) / np.sqrt(np.diag(TARGET.cov)))


def measure(n):
    rng = np.random.default_rng(n)
    points, held_out, base = draws(rng, n), draws(rng, 100), gaussian_base(4, 0.0, 2.0)
    data = (points, LENGTHSCALE, REGULARIZATION, None, base)
    dense, exact = milliseconds(lambda: fit_lite(*data))
    sparse, (low_rank, iterations) = milliseconds(lambda: fit_low_rank(*data))
    features = draw_features(rng, "gaussian", 4, FEATURES, LENGTHSCALE, "sincos")
    batch, whole = milliseconds(lambda: fit_finite(points, features, REGULARIZATION, None, base))
    state = online.start(points[:-50], features, REGULARIZATION, base)

    def fold():
        found = state
        for z in points[-50:]:
            found = online.push(found, z)
        return found

    push, folded = milliseconds(fold)
    solve, running = milliseconds(lambda: online.surrogate(folded))
    return [
        n, dense, sparse, iterations, f"{error(low_rank, exact, held_out):.1e}", batch, push / 50, solve,
        f"{error(running, whole, held_out):.1e}",
    ]  # fmt: skip


def page(options):
    header = ["n", "lite, dense", "low-rank", "iterations", "its error", "finite, batch", "online: one state",
              "its solve", "its error"]  # fmt: skip
    measure(100)  # compiles
    rows = [[report.digits(v) if isinstance(v, float) else v for v in measure(n)] for n in SIZES]
    table = report.table(header, rows)
    return report.page("history_length", globals() | locals())


if __name__ == "__main__":
    provenance.command("history_length", __doc__, page)
