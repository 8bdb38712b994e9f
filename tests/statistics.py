"""z-scores for invariance tests: exact draws in, k transitions, moments out."""

import numpy as np

from pymc_kameleon.metropolis import Outcome, accept


def run_transitions(rng, algorithm, states, log_density, starts, steps):
    """Apply ``steps`` frozen transitions of ``algorithm`` to every start; return the end points, shape (N, d).

    ``states`` is one state shared by all chains, or a list of one state a chain. Nothing adapts: only ``start`` and
    ``keep`` are called, exactly as the step calls them after tuning.
    """
    ends = np.empty_like(starts)
    for n, x in enumerate(starts):
        state = states[n] if isinstance(states, list) else states
        value = log_density(x)
        if hasattr(algorithm, "start"):
            state = algorithm.start(state, x, value)
        for _ in range(steps):
            proposal = algorithm.propose(rng, x, state)
            new_value = value if proposal.position is x else log_density(proposal.position)
            log_q_ratio = proposal.log_q_ratio
            if hasattr(algorithm, "log_ratio"):
                log_q_ratio = algorithm.log_ratio(state, x, value, proposal, new_value)
            probability, accepted = accept(rng, value, new_value, log_q_ratio)
            if accepted:
                x, value = proposal.position, new_value
                if hasattr(algorithm, "keep"):
                    outcome = Outcome(x, value, proposal, new_value, probability, accepted)
                    state = algorithm.keep(state, outcome)
        ends[n] = x
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


def two_sample_z(ends, starts):
    """z-scores of the change of mean, variance and cross moments between exact starts and end points (paired)."""
    centre = starts.mean(axis=0)
    a, b = ends - centre, starts - centre
    d = ends.shape[1]
    changes = [a[:, i] - b[:, i] for i in range(d)]
    changes += [a[:, i] * a[:, j] - b[:, i] * b[:, j] for i in range(d) for j in range(i + 1)]
    return np.array([c.mean() / (c.std(ddof=1) / np.sqrt(len(c)) + 1e-300) for c in changes])
