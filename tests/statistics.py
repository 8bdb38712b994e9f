"""z-scores for invariance tests: exact draws in, k transitions, moments out."""

import numpy as np

from pymc_kameleon.samplers.seam import Outcome, accept


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
