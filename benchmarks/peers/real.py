"""Six models as users write them, and what methods that sample from a prior need besides: its quantiles by hand.

No exact gradient is used anywhere: four have a solver or a simulator in them, and of the others nobody takes one.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pymc as pm
from pytensor import tensor as pt
from pytensor.compile.ops import wrap_py
from scipy.integrate import solve_ivp
from scipy.special import logit, ndtri

from benchmarks.hierarchical.models import Kit, pharmacokinetics
from benchmarks.peers import noisy


class RealModel(NamedTuple):
    """A model, its prior's quantiles in unconstrained coordinates, and what is peculiar to it.

    ``estimate`` makes, where the likelihood is an estimate, ``(rng, x) -> float`` of the unconstrained vector.
    ``counted_model`` makes, where there are several black boxes, the model and what counts their calls.
    """

    model: Callable[[], pm.Model]
    from_cube: Callable[[np.ndarray], np.ndarray]
    estimate: Callable[[], Callable] | None = None
    boxes: int = 1
    counted_model: Callable[[], tuple] | None = None

    @property
    def noisy(self) -> bool:
        """Whether the likelihood is an estimate."""
        return self.estimate is not None

    def noisy_log_density(self, log_prior, rng):
        """Prior and estimate; the noise comes from ``rng``."""
        estimate = self.estimate()

        def log_density(x):
            value = log_prior(x)
            return value + estimate(rng, x) if np.isfinite(value) else -np.inf

        return log_density


def log_half_normal(u, sd):
    """Quantile of the logarithm of a half-normal variable."""
    return np.log(sd * ndtri(0.5 * (1.0 + u)))


# --- an epidemic -------------------------------------------------------------------------------------

PEOPLE, DAYS = 10_000.0, 40
EPIDEMIC = (0.9, 0.35, 0.3, 10.0)  # infections, onsets and recoveries a day, exposed on day 0
SPREAD = 0.1


def new_cases(contact, onset, recovery, exposed):
    """Onsets by the day of an epidemic of susceptible, exposed, infectious and recovered, (days,)."""

    def slopes(day, y):  # susceptible, exposed, infectious, all onsets so far
        infected, fell_ill = contact * y[0] * y[2] / PEOPLE, onset * y[1]
        return [-infected, infected - fell_ill, fell_ill - recovery * y[2], fell_ill]

    start = [PEOPLE - exposed, exposed, 0.0, 0.0]
    found = solve_ivp(slopes, (0, DAYS), start, t_eval=np.arange(DAYS + 1), rtol=1e-3, atol=1e-2)
    if not found.success:
        return np.full(DAYS, np.nan)
    return np.maximum(np.diff(found.y[3]), 1e-6)


def epidemic() -> pm.Model:
    """SEIR by SciPy's solver, negative binomial counts."""
    rng = np.random.default_rng(41)
    mean, n = new_cases(*EPIDEMIC), 1.0 / SPREAD
    cases = rng.negative_binomial(n, n / (n + mean))
    solve = wrap_py(itypes=[pt.dscalar] * 4, otypes=[pt.dvector])(new_cases)
    with pm.Model() as model:
        contact = pm.LogNormal("contact", 0.0, 1.0)
        onset = pm.LogNormal("onset", np.log(1 / 3), 0.3)
        recovery = pm.LogNormal("recovery", np.log(1 / 4), 0.3)
        exposed = pm.LogNormal("exposed", np.log(10.0), 1.0)
        spread = pm.Exponential("spread", 1.0)
        mean = solve(contact, onset, recovery, exposed)
        pm.NegativeBinomial("cases", mu=mean, alpha=1.0 / spread, observed=cases)
    return model


def epidemic_prior(u):
    """Quantiles."""
    location = np.array([0.0, np.log(1 / 3), np.log(1 / 4), np.log(10.0)])
    logs = location + np.array([1.0, 0.3, 0.3, 1.0]) * ndtri(u[:4])
    return np.append(logs, np.log(-np.log1p(-u[4])))


# --- six patients ------------------------------------------------------------------------------------

PATIENTS = 6


def patients() -> pm.Model:
    """Two compartments, six patients, centred; ``benchmarks.hierarchical``'s."""
    return pharmacokinetics(Kit(black=True), PATIENTS)


def counted_patients() -> tuple:
    """The model and what counts its solvers' calls."""
    kit = Kit(black=True)
    return pharmacokinetics(kit, PATIENTS), kit


def patients_prior(u):
    """Quantiles, of the patients given their mean and spread."""
    mean = np.log([3.0, 15.0]) + 0.7 * ndtri(u[:2])
    log_omega = log_half_normal(u[2:4], 0.5)
    rates = np.log([1.0, 2.0, 30.0]) + 0.5 * ndtri(u[4:7])
    theta = mean + np.exp(log_omega) * ndtri(u[8:].reshape(PATIENTS, 2))
    return np.concatenate([mean, log_omega, rates, [log_half_normal(u[7], 0.5)], theta.ravel()])


# --- an orbit ----------------------------------------------------------------------------------------

PERIODS = np.log([1.1, 20.0])  # days
AMPLITUDE_SD, OFFSET_SD, JITTER_SD, ERROR = 10.0, 10.0, 5.0, 2.0  # metres a second
ORBIT = (3.7, 3.0, 2.0, 1.5)  # period, cosine, sine, offset


def velocities() -> tuple[np.ndarray, np.ndarray]:
    """Times in days, always at night, so that periods are mixed up with others; velocities."""
    rng = np.random.default_rng(42)
    days = np.sort(rng.choice(40, 18, replace=False)) + 0.06 * rng.standard_normal(18)
    period, cosine, sine, offset = ORBIT
    phase = 2.0 * np.pi * days / period
    v = offset + cosine * np.cos(phase) + sine * np.sin(phase)
    return days, v + np.hypot(ERROR, 1.0) * rng.standard_normal(18)


def orbit() -> pm.Model:
    """A circular orbit in radial velocities: period, two amplitudes, offset, jitter."""
    days, v = velocities()
    with pm.Model() as model:
        log_period = pm.Uniform("log_period", *PERIODS)
        cosine = pm.Normal("cosine", 0.0, AMPLITUDE_SD)
        sine = pm.Normal("sine", 0.0, AMPLITUDE_SD)
        offset = pm.Normal("offset", 0.0, OFFSET_SD)
        jitter = pm.HalfNormal("jitter", JITTER_SD)
        phase = 2.0 * np.pi * days * pt.exp(-log_period)
        mean = offset + cosine * pt.cos(phase) + sine * pt.sin(phase)
        pm.Normal("velocity", mean, pt.sqrt(ERROR**2 + jitter**2), observed=v)
    return model


def orbit_prior(u):
    """Quantiles."""
    normal = np.array([AMPLITUDE_SD, AMPLITUDE_SD, OFFSET_SD]) * ndtri(u[1:4])
    return np.concatenate([[logit(u[0])], normal, [log_half_normal(u[4], JITTER_SD)]])


MODELS = {
    "SEIR": RealModel(epidemic, epidemic_prior),
    "PK, 6 patients": RealModel(
        patients, patients_prior, boxes=PATIENTS, counted_model=counted_patients
    ),
    "orbit": RealModel(orbit, orbit_prior),
    "Ricker": RealModel(noisy.ricker, noisy.ricker_prior, noisy.ricker_estimate),
    "volatility": RealModel(noisy.volatility, noisy.volatility_prior, noisy.volatility_estimate),
    "GP classifier": RealModel(noisy.classifier, noisy.classifier_prior, noisy.classifier_estimate),
}
