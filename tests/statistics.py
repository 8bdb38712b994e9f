"""z-scores for invariance tests: exact draws in, k transitions, moments out."""

import numpy as np

from pymc_kameleon.metropolis import accept


def run_transitions(rng, algorithm, states, log_density, starts, steps, frozen=True):
    """Apply ``steps`` transitions of ``algorithm`` to every start; return the end points, shape (N, d).

    ``states`` is one state shared by all chains, or a list of one state a chain. The state is *not* adapted, except
    for what ``keep`` caches at the current point.
    """
    ends = np.empty_like(starts)
    keep = getattr(algorithm, "keep", None)
    for n, start in enumerate(starts):
        x, state = start, states[n] if isinstance(states, list) else states
        if hasattr(algorithm, "start"):
            state = algorithm.start(state, x)
        value = log_density(x)
        for _ in range(steps):
            proposal = algorithm.propose(rng, x, state)
            new_value = log_density(proposal.position)
            _, accepted = accept(rng, value, new_value, proposal.log_q_ratio)
            if accepted:
                x, value = proposal.position, new_value
                if keep is not None:
                    state = keep(state, proposal)
        ends[n] = x
    return ends


def z_scores(ends, mean, cov):
    """z-scores of means, variances and cross moments of independent end points against exact moments.

    Standard errors come from the spread of the functionals over the independent end points.
    """
    centred = ends - mean
    d = ends.shape[1]
    functionals = [centred[:, i] for i in range(d)]
    functionals += [centred[:, i] * centred[:, j] - cov[i, j] for i in range(d) for j in range(i + 1)]
    return np.array([f.mean() / (f.std(ddof=1) / np.sqrt(len(f))) for f in functionals])


def two_sample_z(ends, starts):
    """z-scores of the change of mean, variance and cross moments between exact starts and end points (paired)."""
    centre = starts.mean(axis=0)
    a, b = ends - centre, starts - centre
    d = ends.shape[1]
    changes = [a[:, i] - b[:, i] for i in range(d)]
    changes += [a[:, i] * a[:, j] - b[:, i] * b[:, j] for i in range(d) for j in range(i + 1)]
    return np.array([c.mean() / (c.std(ddof=1) / np.sqrt(len(c)) + 1e-300) for c in changes])
