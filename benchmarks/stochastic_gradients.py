"""Hamiltonian ABC (Meeds, Leenders & Welling, 2015): a rival for the benchmarks, not a step of the package.

The gradient of a log likelihood that can only be simulated, by simultaneous perturbation (Spall, 1992): with a random
sign vector D,

    g = D (log L(theta + h D, u) - log L(theta - h D, u)) / (2 h),

u the random numbers behind the simulations, the same ones on both sides. It costs two log likelihoods of S simulations
each, whatever the dimension. L is a Gaussian with the moments of the S simulated summaries (Wood's synthetic
likelihood) or their mean ABC kernel. The gradient drives Hamiltonian dynamics, and there is *no accept step*:

- leapfrog, friction 0, which takes the noise of g for signal and heats up, and
- stochastic gradient HMC (Chen, Fox & Guestrin, 2014, eq. 13): friction C and less injected noise by an estimate of
  g's,  p += e g - e C p + N(0, 2 e (C - B)),  theta += e p,  B = e V / 2, V the variance of g.

Seeds u: ``"fresh"`` at every gradient, ``"sticky"`` for a whole trajectory, ``"persistent"``: a part of the chain's
state, renewed piece by piece with a Metropolis test between trajectories.

What is from where. Meeds et al.: simultaneous perturbation with common seeds, both likelihoods, dynamics with friction,
seeds as a part of the state. Their full text was not at hand (a discussion of it by C. P. Robert was), so these are
choices: V from pairs of gradients at the same point and seeds, taken while warming up, a diagonal; C = B + 1; a
uniformly drawn fifth of the seeds proposed; h = 0.1. The public experiments of Strathmann et al. (2015): 50 steps of
U[0.01, 0.1], momentum anew at every trajectory, ten simulations, one perturbation, sticky seeds, with and without
friction. Differs from them: there log N(theta; mu, Sigma) was differentiated at fixed mu and Sigma, which the observed
data do not enter; here it is log N(observed; mu(theta), Sigma(theta)).

References
----------
T. Chen, E. B. Fox, C. Guestrin (2014). Stochastic gradient Hamiltonian Monte Carlo. ICML.
E. Meeds, R. Leenders, M. Welling (2015). Hamiltonian ABC. UAI. arXiv:1503.01916.
C. P. Robert (2015). Hamiltonian ABC. Blog entry of 13 March 2015, xianblog.wordpress.com.
J. C. Spall (1992). Multivariate stochastic approximation using a simultaneous perturbation gradient approximation.
IEEE Transactions on Automatic Control 37.
S. N. Wood (2010). Statistical inference for noisy nonlinear ecological dynamic systems. Nature 466.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.linalg import solve_triangular

from benchmarks.basics import leapfrog

SEEDS = ("sticky", "persistent", "fresh")
REFRESHED = 0.2  # share of the persistent seeds that is proposed anew before a trajectory


def synthetic_log_likelihood(summaries, observed, epsilon):
    """Log N(observed; mean, covariance + epsilon^2 I) with the moments of ``summaries``, shape (S, d)."""
    mean, d = summaries.mean(axis=0), len(observed)
    if not np.abs(mean).max() < 1e8:  # diverging dynamics: rounding takes the spread away
        return math.nan
    try:
        factor = np.linalg.cholesky(np.cov(summaries.T).reshape(d, d) + epsilon**2 * np.eye(d))
    except np.linalg.LinAlgError:
        return math.nan
    z = solve_triangular(factor, observed - mean, lower=True)
    return -0.5 * d * math.log(2.0 * math.pi) - 0.5 * z @ z - np.log(np.diag(factor)).sum()


def spas(
    rng: np.random.Generator, log_likelihood: Callable[[np.ndarray], float], theta: np.ndarray, width: float = 0.1,
    repeats: int = 1,
) -> np.ndarray:  # fmt: skip
    """Simultaneous-perturbation estimate of a gradient, shape (d,): the mean over ``repeats`` sign vectors."""
    gradient = np.zeros(len(theta))
    for _ in range(repeats):
        signs = np.where(rng.random(len(theta)) < 0.5, -1.0, 1.0)
        rise = log_likelihood(theta + width * signs) - log_likelihood(theta - width * signs)
        gradient += rise / (2.0 * width * repeats) * signs  # 1 / sign = sign
    return gradient


class SPASGradient:
    """The noisy gradient of a log posterior and the seeds behind it.

    ``log_likelihood(u, theta)`` is a function of standard normals u of ``shape``, whose first axis counts the
    simulations; ``log_prior_gradient`` is exact; ``width`` is h, ``repeats`` the sign vectors of a gradient.
    """

    def __init__(self, rng, log_likelihood, shape, log_prior_gradient, *, seeds="sticky", width=0.1, repeats=1):
        if seeds not in SEEDS:
            raise ValueError(f"seeds must be one of {SEEDS}, got {seeds!r}.")
        self.rng, self.log_likelihood, self.shape = rng, log_likelihood, shape
        self.log_prior_gradient, self.seeds = log_prior_gradient, seeds
        self.width, self.repeats = width, repeats
        self.u = rng.standard_normal(shape)

    def __call__(self, theta):
        """An estimate at theta, shape (d,)."""
        likelihood = spas(self.rng, self._log_likelihood, theta, self.width, self.repeats)
        return likelihood + self.log_prior_gradient(theta)

    def _log_likelihood(self, theta):
        u = self.rng.standard_normal(self.shape) if self.seeds == "fresh" else self.u
        return self.log_likelihood(u, theta)

    def new_trajectory(self, theta):
        """Renew the seeds: all of them if sticky, a share, by a Metropolis test at theta, if persistent."""
        fresh = self.rng.standard_normal(self.shape)
        if self.seeds != "persistent":
            self.u = fresh
            return
        chosen = self.rng.random(self.shape[0]) < REFRESHED
        proposed = np.where(chosen.reshape(-1, *[1] * (len(self.shape) - 1)), fresh, self.u)
        rise = self.log_likelihood(proposed, theta) - self.log_likelihood(self.u, theta)
        if math.log(self.rng.random()) < rise:
            self.u = proposed


def hamiltonian_abc(
    rng: np.random.Generator, gradient: Callable[[np.ndarray], np.ndarray], theta: np.ndarray, *, warmup: int,
    draws: int, n_steps: int = 50, step_size: tuple[float, float] = (0.01, 0.1), friction: float = 0.0,
) -> np.ndarray:  # fmt: skip
    """Positions at the ends of ``draws`` trajectories, shape (draws, d), after ``warmup`` that are thrown away.

    The noisy ``gradient``'s ``new_trajectory(theta)``, if it has one, is called before each; the step size is drawn
    once a trajectory. Without ``friction``: leapfrog; otherwise it is what C exceeds B by, and B is zero until
    there are two estimates of V. Where positions overflow a ``FloatingPointError`` is raised: the noise of simultaneous
    perturbation grows with the gradient, and may heat the chain faster than fresh momenta cool it.
    """
    theta, kept = np.array(theta, dtype=float), np.empty((draws, len(theta)))
    renew = getattr(gradient, "new_trajectory", lambda theta: None)
    pairs, variance = 0, np.zeros(len(theta))
    for n in range(-warmup, draws):
        renew(theta)
        if friction > 0.0 and n < 0:
            pairs += 1
            square = 0.5 * (gradient(theta) - gradient(theta)) ** 2
            variance = variance + (square - variance) / pairs
        e = rng.uniform(*step_size)
        momentum = rng.standard_normal(len(theta))
        if friction > 0.0:
            noise = 0.5 * e * variance if pairs > 1 else 0.0 * variance
            theta = _sghmc(rng, gradient, theta, momentum, e, n_steps, friction, noise)
        else:
            *_, (theta, _) = leapfrog(gradient, theta, momentum, e, n_steps)
        if not np.isfinite(theta).all():
            raise FloatingPointError(f"The dynamics diverged in trajectory {n}; take a smaller step_size.")
        if n >= 0:
            kept[n] = theta
    return kept


def _sghmc(rng, gradient, theta, momentum, e, n_steps, friction, noise):
    """Chen, Fox & Guestrin (2014), algorithm 2; ``noise`` is B, and C = B + friction."""
    decay, sd = e * (friction + noise), math.sqrt(2.0 * e * friction)
    for _ in range(n_steps):
        theta = theta + e * momentum
        kick = e * gradient(theta) + sd * rng.standard_normal(len(theta))
        momentum = (1.0 - decay) * momentum + kick
    return theta
