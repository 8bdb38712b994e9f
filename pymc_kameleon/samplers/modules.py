"""Samplers that are still modules, as values of the seam; goes when the last of them has become a class."""

import importlib
import inspect
from types import ModuleType
from typing import Any

from pymc_kameleon.samplers.seam import NOTHING, Outcome, Point, Proposal, Sampler

PROVIDED = ("x", "rng", "random_walk", "factor", "evaluated")


class FromModule(Sampler):
    """The functions of a module, or of an object with their names, and the options of its ``init``."""

    def __init__(self, module: Any, **options: Any):
        self.module, self.options = module, options

    def __getstate__(self):
        """A module cannot be copied; its name can."""
        return self.module.__name__, self.options

    def __setstate__(self, state):
        name, self.options = state
        self.module = importlib.import_module(name)

    def init(self, rng, x, known=NOTHING):
        """See :class:`Sampler`."""
        options = dict(self.options)
        if options.get("tune") is not None:
            options["tune"] = max(1, options["tune"] - known.spent)
        provided = {"rng": rng, "factor": known.factor, "evaluated": known.evaluated}
        taken = inspect.signature(self.module.init).parameters
        return self.module.init(
            x, **options, **{n: v for n, v in provided.items() if n in taken and v is not None}
        )

    def propose(self, rng, x, state) -> Proposal:
        """See :class:`Sampler`."""
        return self.module.propose(rng, x, state)

    def adapt(self, rng, state, outcome: Outcome):
        """See :class:`Sampler`."""
        return self.module.adapt(rng, state, outcome)

    def freeze(self, state):
        """See :class:`Sampler`."""
        return self.module.freeze(state)

    def stats(self, state, proposal=None):
        """See :class:`Sampler`."""
        taken = inspect.signature(self.module.stats).parameters
        return self.module.stats(state, *[proposal][: "proposal" in taken])

    def place(self, state, point: Point, proposal=None):
        """See :class:`Sampler`."""
        if proposal is None:
            if not hasattr(self.module, "start"):
                return state
            return self.module.start(state, point.position, point.log_density)
        if not hasattr(self.module, "keep"):
            return state
        outcome = Outcome(
            point.position, point.log_density, proposal, point.log_density, 1.0, True, point.noise
        )
        return self.module.keep(state, outcome)

    def log_ratio(self, state, point, proposal, there):
        """See :class:`Sampler`."""
        if not hasattr(self.module, "log_ratio"):
            return proposal.log_q_ratio
        return self.module.log_ratio(
            state, point.position, point.log_density, proposal, there.log_density
        )

    def observe(self, state, point):
        """See :class:`Sampler`."""
        if not hasattr(self.module, "observe"):
            return state
        return self.module.observe(state, point.position, point.log_density)


def parameters(algorithm: Any) -> dict[str, Any]:
    """The options of a sampler's class, or of a module, and their defaults."""
    if isinstance(algorithm, ModuleType):
        found = inspect.signature(algorithm.init).parameters
    else:
        found = inspect.signature(algorithm).parameters
    return {name: p.default for name, p in found.items() if name not in PROVIDED}


def make(algorithm: Any, **options: Any) -> Sampler:
    """A sampler with these options, of a class or of what is still a module."""
    if isinstance(algorithm, type):
        return algorithm(**options)
    return FromModule(algorithm, **options)


def of(algorithm: Any) -> Sampler:
    """``algorithm`` as a sampler, if it is not one."""
    return algorithm if isinstance(algorithm, Sampler) else FromModule(algorithm)
