"""z-scores for invariance tests: exact draws in, k transitions, moments out."""

import numpy as np

from pymc_kameleon.samplers import chain
from pymc_kameleon.samplers.modules import of
from pymc_kameleon.samplers.seam import Point


def run_transitions(rng, algorithm, states, log_density, starts, steps):
    """Apply ``steps`` frozen transitions of ``algorithm`` to every start; return the end points, shape (N, d).

    ``states`` is one state shared by all chains, or a list of one state a chain. Nothing adapts.
    """
    ends, sampler = np.empty_like(starts), of(algorithm)
    for n, x in enumerate(starts):
        point = Point(x, log_density(x))
        state = sampler.place(states[n] if isinstance(states, list) else states, point)
        *_, last = chain.draws(rng, sampler, log_density, point, state, steps)
        ends[n] = last.point.position
    return ends


def z_scores(ends, mean, cov):
    """z-scores of means, variances and cross moments of independent end points against exact moments.

    Standard errors come from the spread of the functionals over the independent end points.
    """
    centred = ends - mean
    d = ends.shape[1]
    functionals = [centred[:, i] for i in range(d)]
    functionals += [
        centred[:, i] * centred[:, j] - cov[i, j] for i in range(d) for j in range(i + 1)
    ]
    return np.array([f.mean() / (f.std(ddof=1) / np.sqrt(len(f))) for f in functionals])


def two_sample_z(ends, starts, log_density=None):
    """z-scores of the change between exact starts and end points, which are paired: means, second moments, the 10 and
    90 % quantile indicators and, if given, the log density (clipped: its tail is heavy).
    """
    low, high = np.quantile(starts, [0.1, 0.9], axis=0)
    centre = starts.mean(axis=0)

    def functionals(points):
        a, d = points - centre, points.shape[1]
        values = [a[:, i] for i in range(d)]
        values += [a[:, i] * a[:, j] for i in range(d) for j in range(i + 1)]
        values += [(points[:, i] < low[i]) * 1.0 for i in range(d)]
        values += [(points[:, i] > high[i]) * 1.0 for i in range(d)]
        if log_density is not None:
            values.append(np.array([max(log_density(x), -30.0) for x in points]))
        return np.array(values)

    changes = functionals(ends) - functionals(starts)
    spread = changes.std(axis=1, ddof=1) / np.sqrt(len(ends))
    return changes.mean(axis=1) / np.maximum(spread, 1e-300)
