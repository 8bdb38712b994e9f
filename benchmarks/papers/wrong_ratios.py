"""Two ratios of published codes that leave another distribution: what they do is in ``papers.features``."""

import math
from typing import ClassVar

import numpy as np

from pymc_kameleon.samplers.kameleon import local_moves
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kameleon.local_moves import LocalMoves
from pymc_kameleon.samplers.seam import NOTHING


class NoReverse(Kameleon):
    """KAMH that takes its proposal for symmetric: not a sampler of the target."""

    def propose(self, rng, x, state):
        return super().propose(rng, x, state)._replace(log_q_ratio=0.0)  # the error


class PreviousCovariance(LocalMoves):
    """``right`` in all but the ratio; its state is a pair: the covariance where the chain was before comes with it."""

    right: ClassVar[type[LocalMoves]]

    def init(self, rng, x, known=NOTHING):
        return super().init(rng, x, known), None

    def propose(self, rng, x, state):
        inner, previous = state
        proposal = super().propose(rng, x, inner)
        if proposal.move != "local" or previous is None:
            return proposal
        gamma, scale = self.local_gamma(inner), math.exp(inner.log_scale)
        delta = np.linalg.solve(inner.factor, proposal.position - x)
        forward = local_moves.log_step_density(delta, inner.covariance, gamma, scale)
        reverse = local_moves.log_step_density(delta, previous, gamma, scale)  # the error
        return proposal._replace(log_q_ratio=reverse - forward)

    def place(self, state, point, proposal=None):
        inner, previous = state
        if proposal is not None:
            previous = inner.covariance
        return super().place(inner, point, proposal), previous

    def adapt(self, rng, state, outcome):
        inner, previous = state
        own = self.right(**{name: getattr(self, name) for name in self.defaults()})
        return own.adapt(rng, inner, outcome), previous

    def freeze(self, state):
        return super().freeze(state[0]), state[1]


class WrongReverse(PreviousCovariance, Kameleon):
    """KAMH as the dissertation's appendix B.1 has it."""

    right = Kameleon


class WrongReverseFast(PreviousCovariance, FastKameleon):
    """F-KAMH as its appendix B.2 has it."""

    right = FastKameleon
