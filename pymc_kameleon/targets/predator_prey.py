"""The Lotka-Volterra equations: du/dt = (alpha - beta v) u, dv/dt = (-gamma + delta u) v; u hares, v lynxes."""

import math

import numpy as np

from pymc_kameleon.numerics.compiled import njit


@njit(cache=True)
def solve_logs(alpha, beta, gamma, delta, log_u, log_v, years, steps):
    """Log populations at years 0, 1, ..., shape (years, 2), by the classical RK4 on the logs."""
    out = np.full((years, 2), np.nan)
    out[0, 0], out[0, 1] = log_u, log_v
    h = 1.0 / steps
    for year in range(1, years):
        for _ in range(steps):
            u1 = alpha - beta * math.exp(log_v)
            v1 = delta * math.exp(log_u) - gamma
            u2 = alpha - beta * math.exp(log_v + 0.5 * h * v1)
            v2 = delta * math.exp(log_u + 0.5 * h * u1) - gamma
            u3 = alpha - beta * math.exp(log_v + 0.5 * h * v2)
            v3 = delta * math.exp(log_u + 0.5 * h * u2) - gamma
            u4 = alpha - beta * math.exp(log_v + h * v3)
            v4 = delta * math.exp(log_u + h * u3) - gamma
            log_u += h * (u1 + 2.0 * u2 + 2.0 * u3 + u4) / 6.0
            log_v += h * (v1 + 2.0 * v2 + 2.0 * v3 + v4) / 6.0
            if not (abs(log_u) < 50.0 and abs(log_v) < 50.0):  # NaN as well
                return out
        out[year, 0], out[year, 1] = log_u, log_v
    return out


@njit(cache=True)
def solve_lotka_volterra(alpha, beta, gamma, delta, hare0, lynx0, years=21, steps_per_year=20):
    """Populations of hares and lynxes at years 0, 1, ..., by the classical Runge-Kutta method on their logarithms.

    Compiled; call it from Python or from Numba code. At the default step of 1/20 year the logs differ from SciPy's
    ``solve_ivp`` (DOP853, tolerances 1e-12) by less than 1e-6 over the posterior of the lynx-hare data, and by sixteen
    times that at half the number of steps.

    Parameters
    ----------
    alpha : float
        Growth rate of the hares, per year.
    beta : float
        Their loss per lynx, per year.
    gamma : float
        Death rate of the lynxes, per year.
    delta : float
        Their gain per hare, per year.
    hare0 : float
        Hares at year 0, > 0 (thousands of pelts).
    lynx0 : float
        Lynxes at year 0, > 0 (thousands of pelts).
    years : int
        How many populations are returned, that of year 0 included.
    steps_per_year : int
        Runge-Kutta steps from one year to the next.

    Returns
    -------
    ndarray of shape (years, 2)
        Hares and lynxes. From the year on at which a log population leaves (-50, 50): NaN.
    """
    return np.exp(solve_logs(alpha, beta, gamma, delta, math.log(hare0), math.log(lynx0), years, steps_per_year))
