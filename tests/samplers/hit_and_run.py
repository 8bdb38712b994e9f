"""A sampler from scratch, the worked example of ARCHITECTURE.md: a hit-and-run walk (Smith, 1984).

A direction at random, then a normal step along it, whose length is tuned. A new sampler is this much: what adapts
(``State``), a class whose fields are its options, and one line in ``tests/samplers/test_seam.py``. A step for users is
one class more in ``pymc_kameleon/steps/methods.py``.

R. L. Smith (1984). Efficient Monte Carlo procedures for generating points uniformly distributed over bounded regions.
Operations Research 32.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from pymc_kameleon.numerics.checks import inside, positive
from pymc_kameleon.numerics.step_size import robbins_monro
from pymc_kameleon.samplers.seam import NOTHING, Proposal, Sampler


class State(NamedTuple):
    """What adapts: log of the step's standard deviation, and the draws it has been tuned on."""

    log_scale: np.ndarray
    moves: int


@dataclass(frozen=True, kw_only=True, eq=False)
class HitAndRun(Sampler):
    """A step along a random direction.

    Parameters
    ----------
    scale : float
        Standard deviation of the step at the start, positive. Default 1.
    target_accept : float
        Acceptance probability that it is tuned to, in (0, 1). Default 0.44: optimal in one dimension.
    """

    statistics: ClassVar[dict] = {"scaling": float}

    scale: float = 1.0
    target_accept: float = 0.44

    def __post_init__(self):
        positive(scale=self.scale)
        inside(target_accept=(self.target_accept, 0, 1))

    def init(self, rng, x, known=NOTHING):
        return State(np.array(math.log(self.scale)), 0)

    def propose(self, rng, x, state):
        direction = rng.standard_normal(len(x))
        direction /= np.linalg.norm(direction)
        step = math.exp(state.log_scale) * rng.standard_normal()
        # the way back is as likely: the ratio is that of the target alone
        return Proposal(x + step * direction, 0.0, "hit-and-run")

    def adapt(self, rng, state, outcome):
        moves = state.moves + 1
        target = outcome.target(self.target_accept)
        log_scale = robbins_monro(state.log_scale, outcome.accept_prob, target, moves**-0.6)
        return State(np.array(log_scale), moves)

    def stats(self, state, proposal=None):
        return {"scaling": math.exp(state.log_scale)}
