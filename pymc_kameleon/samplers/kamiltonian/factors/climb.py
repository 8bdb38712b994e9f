"""From where a chain starts to the typical set, on the surrogate: tens of evaluations.

One evaluation is a design point for every factor, whatever the log density as a whole, so that a surrogate of the
neighbourhood is known after a few of them. Each round goes to its highest point in a box (free), evaluates there and
at a few points around, and widens or narrows the box by how much of the promised rise has come true. It ends below the
mode: where less than d/4 nats are to be gained, the chain is where posterior draws are, d/2 below it.
"""

import math

import numpy as np

from pymc_kameleon.samplers.kamiltonian.factors.state import Climb
from pymc_kameleon.samplers.kamiltonian.factors.surface import Known, Surface, spot

SATELLITES = (0.3, 0.6, 1.0)
ROUNDS, CALM = 40, 4  # at which it ends: of these, and how calm it has to be
WIDEST = 4.0


def design_size(layout) -> int:
    """Evaluations before the first surrogate."""
    widest = layout.widest
    quadratic = (widest + 1) * (widest + 2) // 2
    if layout.added.any():
        return max(16, int((2.0 if widest > 4 else 1.6) * quadratic) + 6)
    return max(16, 2 * widest + 6)


def target(known: Known, surface: Surface, u: np.ndarray, half_width: float):
    """(highest point of the surrogate in a box around ``u``, ``half_width`` units wide, by how much it is higher).

    ``u`` itself and NaN where the search got lost, where the surrogate has no value.
    """
    from scipy.optimize import minimize  # slow to import

    start = spot(known, surface, u)
    worst = max(1e10, 10.0 * abs(start.value))

    def negative(u):
        here = spot(known, surface, u)
        if here.value == -math.inf:
            return worst, np.zeros(len(u))
        return -here.value, -here.gradient

    bounds = list(zip(u - half_width * known.units, u + half_width * known.units, strict=True))
    found = minimize(negative, u, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 200})
    promised = -float(found.fun) - start.value
    if not (promised >= 0.0 and np.isfinite(found.x).all()):
        return u.copy(), math.nan
    return found.x, promised


def learn(climb: Climb, rise: float, dim: int) -> Climb:
    """After the target's evaluation, ``rise`` above the current point: the next box."""
    kept = rise / max(climb.promised, 1e-9) if math.isfinite(rise) else -1.0
    width = climb.half_width * (2.0 if kept > 0.5 else 1.0 if kept > 0.1 else 0.4)
    calm = 0
    # nothing to gain; a narrow box has little to gain anywhere: it counts half
    if climb.promised < 0.25 * dim and width > 0.05:
        calm = climb.calm + (2 if width > 0.2 else 1)
        calm = CALM if climb.rounds == 0 else calm
    return climb._replace(
        half_width=min(max(width, 1e-3), WIDEST), target=None, calm=calm,
        rounds=climb.rounds + 1, satellites=climb.around,
    )  # fmt: skip


def metric(known: Known, surface: Surface, u: np.ndarray) -> np.ndarray:
    """Inverse root of the surrogate's curvature at ``u``, shape (d, d): 2 d gradients, free."""
    d = len(u)
    hessian = np.empty((d, d))
    for i in range(d):
        h = np.zeros(d)
        h[i] = 1e-3
        up, down = spot(known, surface, u + h), spot(known, surface, u - h)
        hessian[i] = (down.gradient - up.gradient) / 2e-3
    values, vectors = np.linalg.eigh(0.5 * known.units[:, None] * (hessian + hessian.T) * known.units)
    values = np.clip(np.abs(values), 0.25, 1e12)  # no axis longer than 2 of a standardised prior
    return known.units[:, None] * ((vectors * values**-0.5) @ vectors.T)
