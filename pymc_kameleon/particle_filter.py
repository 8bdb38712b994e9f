"""Bootstrap particle filters: unbiased likelihood estimates of state-space models.

The hidden state is a stationary autoregression, seen through noise:

    x_1 ~ N(mean, sd^2 / (1 - persistence^2)),   x_t = mean + persistence (x_{t-1} - mean) + sd e_t,
    y_t ~ g(y_t | x_t).

N particles are moved by the dynamics, weighted by g and resampled at every time. The product over t of the mean weights
is an unbiased estimate of p(y_1, ..., y_T) (Gordon, Salmond & Smith, 1993, is the filter; Del Moral, 2004, proposition
7.4.1, is the unbiasedness; Andrieu, Doucet & Holenstein, 2010, is what it is good for).

References
----------
Andrieu, C., Doucet, A. & Holenstein, R. (2010). Particle Markov chain Monte Carlo methods. JRSS B 72.
Deligiannidis, G., Doucet, A. & Pitt, M. K. (2018). The correlated pseudo-marginal method. JRSS B 80.
Del Moral, P. (2004). Feynman-Kac Formulae. Springer.
Doucet, A., Pitt, M. K., Deligiannidis, G. & Kohn, R. (2015). Efficient implementation of Markov chain Monte Carlo when
using an unbiased likelihood estimator. Biometrika 102.
Gordon, N. J., Salmond, D. J. & Smith, A. F. M. (1993). Novel approach to nonlinear/non-Gaussian Bayesian state
estimation. IEE Proceedings F 140(2).
Kitagawa, G. (1996). Monte Carlo filter and smoother for non-Gaussian nonlinear state space models. JCGS 5.
"""

import math

import numpy as np

from pymc_kameleon.numerics.checks import count
from pymc_kameleon.numerics.compiled import njit

_LOG_2PI = math.log(2.0 * math.pi)


@njit(cache=True, error_model="numpy")
def _log_density(y, x, volatility, observation_sd):
    """Log g(y | x)."""
    if volatility:  # y ~ N(0, exp(x)); exp(-x) may overflow where y is 0
        scaled = y * y * math.exp(-x) if y != 0.0 else 0.0
        return -0.5 * (_LOG_2PI + x + scaled)
    z = (y - x) / observation_sd
    return -0.5 * (_LOG_2PI + z * z) - math.log(observation_sd)


@njit(cache=True, error_model="numpy")
def _uniform(z):
    """A uniform number from a standard normal one."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


@njit(cache=True, error_model="numpy")
def _resample(particles, cumulative, normals, systematic, out):
    """Particles in proportion to their weights, with ``cumulative`` sums of weights of total n."""
    n = particles.shape[0]
    total, j = cumulative[n - 1], 0
    shift = _uniform(normals[0])
    for i in range(n):
        if systematic:  # one uniform for all, evenly spaced: Kitagawa (1996)
            position = (i + shift) * total / n
            while j < n - 1 and cumulative[j] < position:
                j += 1
        else:
            j = min(np.searchsorted(cumulative, _uniform(normals[i]) * total), n - 1)
        out[i] = particles[j]


@njit(cache=True, error_model="numpy")
def _bootstrap_filter(y, parameters, volatility, u, n_particles, systematic, sort):
    """Log of the product over t of the mean weights; ``parameters`` ends with the observation's sd."""
    mean, persistence, sd, observation_sd = parameters
    particles, parents = np.empty(n_particles), np.empty(n_particles)
    weights, cumulative = np.empty(n_particles), np.empty(n_particles)
    total = 0.0
    for t in range(y.shape[0]):
        if t == 0:
            particles[:] = mean + sd / math.sqrt(1.0 - persistence * persistence) * u[0, :n_particles]
        else:
            _resample(particles, cumulative, u[t, n_particles:], systematic, parents)
            particles[:] = mean + persistence * (parents - mean) + sd * u[t, :n_particles]
        if sort:
            particles.sort()
        largest = -math.inf
        for i in range(n_particles):
            # a missing observation weighs nothing
            weights[i] = 0.0 if math.isnan(y[t]) else _log_density(y[t], particles[i], volatility, observation_sd)
            largest = max(largest, weights[i])
        if not -math.inf < largest < math.inf:
            return -math.inf
        running = 0.0
        for i in range(n_particles):
            running += math.exp(weights[i] - largest)
            cumulative[i] = running
        total += largest + math.log(running / n_particles)
    return total


class _BootstrapFilter:
    """What both filters share; a subclass names its observation and parameters."""

    parameters: tuple[str, ...] = ()
    _volatility = False

    def __init__(self, y, n_particles=200, *, resampling="systematic", sort=False):
        self.y = np.array(y, dtype=float)
        if self.y.ndim != 1 or len(self.y) == 0 or np.isinf(self.y).any():
            raise ValueError(
                f"y must be a series of finite numbers, NaN where one is missing; got shape {self.y.shape}"
            )
        count(1, n_particles=n_particles)
        if resampling not in ("systematic", "multinomial"):
            raise ValueError(f"resampling must be 'systematic' or 'multinomial'; got {resampling!r}")
        self.n_particles, self.resampling, self.sort = n_particles, resampling, bool(sort)
        self.aux_shape = self._shape(self.n_particles)
        self.failures = 0

    def _shape(self, n_particles):
        return len(self.y), n_particles + (1 if self.resampling == "systematic" else n_particles)

    def __call__(self, rng, *parameters, work=None):
        """Log of an unbiased estimate of the likelihood, with its noise from ``rng`` and ``work`` particles.

        ``NoisyLogLikelihood(filter, work=filter.n_particles)`` has their number tuned.
        """
        n = self.n_particles if work is None else work
        return self._estimate(parameters, rng.standard_normal(self._shape(n)), n)

    def given(self, u, *parameters):
        """``log_estimate(parameters, u)``: the form for noise that the sampler owns and may correlate.

        ``NoisyLogLikelihood(filter.given, auxiliary_shape=filter.aux_shape)``
        """
        return self.log_estimate(parameters, u)

    def log_estimate(self, theta, u):
        """Log of the likelihood's estimate: deterministic, never NaN; -inf, and counted, where it fails.

        ``theta`` is in the order of ``parameters``, and outside their domain the estimate is -inf. ``u``, of shape
        ``aux_shape``, are standard normals: a row for each time, those that move the particles, then those that
        resample.
        """
        if np.shape(u) != self.aux_shape:
            raise ValueError(f"u must have shape {self.aux_shape}; got {np.shape(u)}")
        return self._estimate(theta, u, self.n_particles)

    def _estimate(self, theta, u, n_particles):
        theta = [float(value) for value in theta]
        if len(theta) != len(self.parameters):
            raise ValueError(f"expected the parameters {self.parameters}; got {len(theta)} values")
        value, how = -math.inf, (u, n_particles, self.resampling == "systematic", self.sort)
        if all(map(math.isfinite, theta)) and abs(theta[1]) < 1.0 and min(theta[2:]) > 0.0:
            value = _bootstrap_filter(self.y, (*theta, 1.0)[:4], self._volatility, *how)
        if not -math.inf < value < math.inf:
            self.failures += 1
            return -math.inf
        return value


class StochasticVolatilityFilter(_BootstrapFilter):
    """Likelihood estimate of the stochastic-volatility model: y_t ~ N(0, exp(x_t)), x_t the log volatility.

    ``filter(rng, mean, persistence, sd)`` is what :class:`pymc_kameleon.NoisyLogLikelihood` takes. It has no useful
    gradient: resampling is discontinuous.

    Parameters
    ----------
    y : array_like of shape (T,)
        Returns; NaN is a missing observation.
    n_particles : int, default 200
        The variance of the log estimate is about proportional to T / n_particles; a standard deviation of 1.2 to 1.5
        makes pseudo-marginal chains most efficient (Doucet, Pitt, Deligiannidis & Kohn, 2015).
    resampling : {"systematic", "multinomial"}, default "systematic"
        Both unbiased; systematic has less variance.
    sort : bool, default False
        Keep the particles in order, so that close u give close estimates: for the correlated pseudo-marginal method
        (Deligiannidis, Doucet & Pitt, 2018).

    Attributes
    ----------
    parameters : tuple of str
    aux_shape : tuple
        Shape of u.
    failures : int
        Estimates that were -inf.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_kameleon.particle_filter import StochasticVolatilityFilter, simulate_stochastic_volatility
    >>> rng = np.random.default_rng(0)
    >>> y, _ = simulate_stochastic_volatility(rng, 100)
    >>> likelihood = StochasticVolatilityFilter(y, n_particles=100)
    >>> bool(likelihood(rng, -1.0, 0.95, 0.3) > likelihood(rng, 5.0, 0.95, 0.3))
    True
    """

    parameters = ("mean", "persistence", "sd")
    _volatility = True


class LinearGaussianFilter(_BootstrapFilter):
    """Likelihood estimate of y_t ~ N(x_t, observation_sd^2): the Kalman filter knows it exactly, so a test of filters.

    ``filter(rng, mean, persistence, sd, observation_sd)``; everything else as in :class:`StochasticVolatilityFilter`.
    """

    parameters = ("mean", "persistence", "sd", "observation_sd")


def simulate_states(rng, n, mean, persistence, sd):
    """The hidden autoregression, shape (n,), from its stationary distribution on."""
    if not (abs(persistence) < 1.0 and sd > 0.0):
        raise ValueError(f"need |persistence| < 1 and sd > 0; got {persistence} and {sd}")
    z = rng.standard_normal(n)
    x = sd * z
    x[:1] = sd / math.sqrt(1.0 - persistence**2) * z[:1]
    for t in range(1, n):
        x[t] += persistence * x[t - 1]
    return mean + x


def simulate_stochastic_volatility(rng, n, mean=-1.0, persistence=0.95, sd=0.3):
    """(returns y, log volatilities x), shape (n,) each."""
    x = simulate_states(rng, n, mean, persistence, sd)
    return np.exp(0.5 * x) * rng.standard_normal(n), x


def simulate_linear_gaussian(rng, n, mean=0.0, persistence=0.9, sd=0.5, observation_sd=1.0):
    """(observations y, states x), shape (n,) each."""
    x = simulate_states(rng, n, mean, persistence, sd)
    return x + observation_sd * rng.standard_normal(n), x
