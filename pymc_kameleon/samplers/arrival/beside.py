"""Further points to evaluate beside the one that an arrival proposes: for workers that would wait.

While far: a longer step the same way, and whatever is uncertain in other directions. They are data for the next
quadratic, and the best of all points is where the climb goes on; predictions are judged by the proposal alone. With
twice to four times as many points a climb takes half as many rounds, or fewer.
"""

import numpy as np

from pymc_kameleon.samplers.arrival.phase import AT_THE_EDGE, State, by_promise, unit_vectors


def propose(rng: np.random.Generator, state: State, point: np.ndarray, n: int) -> list[np.ndarray]:
    """At most ``n`` points, of shape (d,), beside ``point``; none near the typical set, which chains explore."""
    if n < 1 or state.near is not None or state.move == "start":
        return []
    d = len(state.origin)
    if state.model is None or state.fitted < state.evaluations:  # nothing new is known
        origin, basis = state.positions[state.current], state.radius * state.metric
        directions = np.eye(d) if state.model is None else unit_vectors(rng, 2 * n + 4, d)
        directions = directions[rng.permutation(len(directions))]
    else:
        origin, basis, directions = state.origin, state.basis, by_promise(rng, state)
    step = np.linalg.solve(basis, point - origin)
    found = [3.0 * step] if state.move == "climb" and step @ step > AT_THE_EDGE else []
    found += _apart(step, directions, n - len(found))
    return [origin + basis @ s for s in found]


def _apart(step, directions, n):
    """The first ``n`` of the directions that are not along ``step``, nor along one another."""
    found = [step / max(np.sqrt(step @ step), 1e-300)]
    for s in directions:
        if len(found) > n:
            break
        if np.abs(np.array(found) @ s).max() < 0.7:
            found.append(s)
    return found[1:]
