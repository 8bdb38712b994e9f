"""What is sampled: the twelve targets of ``cold_start`` and six models as users write them.

The twelve have no prior. Methods that sample from one get a uniform box, ten true standard deviations on both sides of
the true mean: wide enough to cut nothing off (the funnel's tails a little), and they are told where the posterior is,
which the others are not. Chains and walkers get ``cold_start``'s over-dispersed starts, within two standard deviations.
The six models have priors of their own; chains start where ``pm.sample`` starts them, the initial point + U(-1, 1).
All coordinates are unconstrained.
"""

from collections.abc import Callable
from functools import cache, cached_property

import numpy as np
import pymc as pm
from scipy.special import expit

from benchmarks import basics, cold_start
from benchmarks.peers import real
from benchmarks.textbook.posterior import Posterior

BOX = 10.0  # standard deviations


class Flat:
    """A target of ``cold_start`` as a model of one flat vector; what :class:`Posterior` is for models."""

    def __init__(self, name: str):
        self.name, self.target = name, cold_start.TARGETS[name]
        self.model, self.dim = self.target.pymc_model(), self.target.dim
        self.log_density = self.target.numba_log_density

    def starts(self, seed: int, n: int) -> np.ndarray:
        """Shape (n, d); the first four are ``cold_start``'s."""
        rngs = basics.generators([cold_start._key(self.name), seed], n)
        return np.array([cold_start.start(self.name, rng) for rng in rngs])

    def to_point(self, x):
        """What a step takes."""
        return {"x": np.array(x, dtype=float)}

    def ravel(self, point):
        """The vector."""
        return np.array(point["x"], dtype=float)


class Problem:
    """One target, as all samplers see it.

    Attributes
    ----------
    noisy : bool
        Whether the log density is an estimate: every evaluation draws its own noise.
    span : bool
        Whether the target is in the span of KamiltonianStep's surrogates.
    boxes : int
        Black boxes of the model that one evaluation calls, where there is more than one.
    """

    def __init__(self, name: str):
        self.name = name
        self.real = real.MODELS.get(name)
        self.noisy = self.real is not None and self.real.noisy
        self.span, self.boxes = name in cold_start.SPAN, 1 if self.real is None else self.real.boxes
        if self.real is None:
            target = cold_start.TARGETS[name]
            sd = np.sqrt(np.diag(target.cov))
            self.low, self.high = target.mean - BOX * sd, target.mean + BOX * sd

    @cached_property
    def posterior(self):
        """With ``model``, ``dim``, ``starts``, ``to_point`` and ``ravel``."""
        return Flat(self.name) if self.real is None else Posterior(self.name, self.real.model())

    @property
    def dim(self) -> int:
        """Unknowns."""
        return self.posterior.dim

    def log_density(self, rng: np.random.Generator) -> Callable[[np.ndarray], float]:
        """The log density; what noise it has is drawn from ``rng``."""
        if self.noisy:
            return self.real.noisy_log_density(self.log_prior, rng)
        return self.posterior.log_density

    def starts(self, seed: int, run: int, n: int) -> np.ndarray:
        """Where ``n`` chains or walkers of a run begin, shape (n, d), the same for every sampler.

        A single chain's are those of ``cold_start``, run by run.
        """
        if n == 1:
            return self.posterior.starts(seed, run + 1)[run:]
        return self.posterior.starts(1000 + 10 * seed + run, n)

    # --- for methods that sample from a prior ---

    def from_cube(self, u: np.ndarray) -> np.ndarray:
        """The point of the prior at quantiles ``u`` of shape (d,)."""
        if self.real is None:
            return self.low + (self.high - self.low) * np.asarray(u)
        with np.errstate(all="ignore"):
            tiny = 1e-12
            return np.asarray(self.real.from_cube(np.clip(u, tiny, 1.0 - tiny)))

    @cached_property
    def log_prior(self) -> Callable[[np.ndarray], float]:
        """Log density of the prior in unconstrained coordinates; of the twelve that of the box, which is constant."""
        if self.real is None:
            return lambda x: 0.0
        posterior = self.posterior
        function = posterior.model.compile_fn(
            posterior.model.varlogp, inputs=posterior.model.value_vars, point_fn=True
        )
        return lambda x: float(function(posterior.to_point(np.asarray(x))))

    def log_likelihood(self, log_density: Callable) -> Callable[[np.ndarray], float]:
        """Of a point; ``log_density`` is what is counted."""
        return lambda x: log_density(x) - self.log_prior(x)

    @cached_property
    def prior_model(self) -> pm.Model:
        """The prior alone, for ``pm.sample_smc``."""
        if self.real is not None:
            return self.posterior.model
        with pm.Model() as model:
            pm.Uniform("x", self.low, self.high, shape=len(self.low))
        return model

    def from_values(self, z: np.ndarray) -> np.ndarray:
        """The point of a vector of ``prior_model``'s value variables."""
        return self.low + (self.high - self.low) * expit(z) if self.real is None else z


TARGETS = (*cold_start.TARGETS, *real.MODELS)


@cache
def problem(name: str) -> Problem:
    """Compiled once in a process."""
    return Problem(name)
