"""The seam every sampler here shares, and the one accept/reject step.

A :class:`Sampler` is a value: its fields are its options, checked when it is made and never changed. What changes is a
state, a NamedTuple that goes in and comes out. ``propose`` returns a :class:`Proposal` whose ``log_q_ratio`` is
*everything in the Metropolis-Hastings ratio except the target*,

    log_q_ratio = log q(x | x*) - log q(x* | x),

so that the test  ``log u < log p(x*) - log p(x) + log_q_ratio``  is written once, here, and the loop around it once, in
:mod:`pymc_kameleon.samplers.chain`.
"""

import math
from dataclasses import fields
from functools import cache
from typing import Any, ClassVar, NamedTuple, get_type_hints

import numpy as np
import scipy

from pymc_kameleon.numerics.checks import count
from pymc_kameleon.numerics.evaluations import Evaluations
from pymc_kameleon.numerics.step_size import robbins_monro
from pymc_kameleon.samplers.docstrings import inherit
from pymc_kameleon.samplers.option_types import check_types

NEVER = 2**62  # draws, or evaluations: what waits for it does not come


class Proposal(NamedTuple):
    """A proposed point and what the test needs to know about how it was made."""

    position: np.ndarray  # (d,): x*. When it *is* the current point (the same array), nothing needs evaluating
    log_q_ratio: float  # log q(x | x*) - log q(x* | x). ``-inf`` evaluates the point and never moves there
    move: str = ""  # which of the algorithm's kernels made the proposal
    carry: Any = None  # what the algorithm computed at ``position`` and wants back, in ``adapt`` and ``place``
    log_density: float | None = None  # at ``position`` when it is known already, so that it is not evaluated again
    # Where a noisy log density is a function of retained random numbers, and the proposal comes from a point that is
    # not the chain's: the noise retained there, as an :class:`Outcome` told it. To be given back, not to be read.
    noise: Any = None


class Point(NamedTuple):
    """Where a chain is, with what was evaluated there: retained, never evaluated anew."""

    position: np.ndarray  # (d,)
    log_density: float  # ``-inf`` where it was not finite
    # What else belongs to the log density and is accepted with it, where it is an estimate: the noisy part of it and
    # the random numbers that it is a function of. For the step; a sampler only hands it on.
    noise: Any = None
    outputs: np.ndarray | None = None  # (n_o,): what black boxes returned, where they are learned one by one


class Density:
    """What a life asks of a log density, beside its value: one that is exact, in coordinates of its own, by itself.

    Parameters
    ----------
    dim : int

    Attributes
    ----------
    noisy, has_others : bool
        Whether it is an estimate, and whether others move what else it depends on.
    split : bool
        Whether the noisy part of it is kept apart.
    reparametrized : bool
        Whether it has coordinates to choose: it then has ``recast``, ``noncentred`` and what :mod:`.centring` asks.
    scales : tuple of KnownScale
        What of it a surrogate need not learn, see :mod:`pymc_kameleon.surrogates.values.known_scales`.
    given_work : tuple of int
        What its estimators are given.
    circles : ndarray of shape (k,)
        Which coordinates are angles, with a log density that repeats itself every 2 pi.
    """

    noisy = has_others = split = reparametrized = False
    circles = np.zeros(0, dtype=np.int64)
    scales: tuple = ()
    given_work: tuple[int, ...] = ()
    work: tuple[int, ...] = ()

    def __init__(self, dim: int):
        self.dim = dim


class Known(NamedTuple):
    """What is known when a walk begins where an arrival (:mod:`pymc_kameleon.samplers.arrival`) has ended."""

    spent: int = 0  # tuning draws that are over
    factor: np.ndarray | None = None  # (d, d): lower Cholesky factor of what the covariance is near the point
    evaluated: Evaluations | None = None  # other points, and their log densities
    # those are enough to learn from at once: an earlier run's, see :mod:`pymc_kameleon.samplers.known_points`
    warm: bool = False
    scales: tuple = ()  # the density's

    def left(self, tune: int | None) -> int | None:
        """How many of ``tune`` tuning draws are left, one at least; None if their number is not known."""
        return None if tune is None else max(1, tune - self.spent)


NOTHING = Known()


class Outcome(NamedTuple):
    """What became of a proposal; the argument of ``adapt``."""

    position: np.ndarray  # (d,): the chain's state *after* the test
    log_density: float  # there
    proposal: Proposal
    proposed_log_density: float  # at ``proposal.position``; ``-inf`` where it was not finite
    accept_prob: float  # in [0, 1]
    accepted: bool
    # What belongs to ``proposed_log_density``, and what belonged to the chain's log density before the test, where a
    # log density has retained noise. An algorithm that keeps a point of its own keeps its noise beside it.
    noise: Any = None
    former_noise: Any = None
    noise_sd: float = 0.0  # of the noise in the log density as far as it has been measured; 0 if it is exact
    # Positive: how likely a move of length zero is from where the chain is, relative to the mean. An overestimated log
    # density holds the chain for hundreds of draws, whose rejections say nothing about a scale; a fresh one is left
    # sooner than most.
    patience: float = 1.0
    outputs: np.ndarray | None = None  # the proposed point's

    def tuned(self, log_scale: float, target_accept: float, rate: float, low: float, high: float) -> float:
        """A log scale after one Robbins-Monro step of size ``rate``, kept between ``low`` and ``high``."""
        target = self.target(target_accept)
        return min(max(robbins_monro(log_scale, self.accept_prob, target, rate), low), high)

    def target(self, target_accept: float) -> float:
        """What to compare ``accept_prob`` with when a scale is tuned to ``target_accept``."""
        return self.patience * attainable(target_accept, self.noise_sd)


class Sampler:
    """A Metropolis-Hastings kernel that learns while tuning.

    A subclass is a frozen dataclass, ``@dataclass(frozen=True, kw_only=True, eq=False)``. Its fields are its options:
    documented, checked in ``__post_init__`` as far as they can be without a dimension, and never changed. Their types
    are checked here (a ``Literal`` lists the words there are), and the docstring gets what is said of inherited ones.
    What is outside an option's domain is a ``ValueError`` with the value.
    """

    presets: ClassVar[dict[str, dict[str, Any]]] = {}  # named sets of options
    statistics: ClassVar[dict[str, type]] = {"scaling": float}  # what :meth:`stats` returns
    # whether it comes to the typical set, and makes estimates anew that hold the chain while tuning, without ``life``
    climbs_by_itself: ClassVar[bool] = False
    renews_by_itself: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        inherit(cls)

    def __post_init__(self):
        """Refuse options that are not of their type; a subclass that goes on from here, those out of their domain."""
        options = {name: getattr(self, name) for name in self.defaults()}
        check_types(options, _annotations(type(self)))
        for name in ("tune", "local_start", "first_fit", "sweeps"):  # numbers of draws
            if options.get(name) is not None:
                count(int(name == "tune"), **{name: options[name]})

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """The options and their defaults."""
        return {f.name: f.default for f in fields(cls) if f.init}  # type: ignore[arg-type]

    def init(self, rng: np.random.Generator | None, x: np.ndarray, known: Known = NOTHING) -> Any:
        """The state of a chain that begins at ``x``, shape (d,)."""
        raise NotImplementedError

    def propose(self, rng: np.random.Generator, x: np.ndarray, state: Any) -> Proposal:
        """Where to go from ``x``; writes nothing."""
        raise NotImplementedError

    def adapt(self, rng: np.random.Generator, state: Any, outcome: Outcome) -> Any:
        """Learn from one draw, while tuning only; called after :meth:`place`."""
        return state

    def freeze(self, state: Any) -> Any:
        """End of tuning: nothing adapts any more."""
        return state

    def stats(self, state: Any, proposal: Proposal | None = None) -> dict[str, Any]:
        """The declared ``statistics`` of a state, and of the draw that ``proposal`` was for."""
        raise NotImplementedError

    # What most need not say.

    def draw_stats(self, state: Any, proposal: Proposal) -> dict[str, Any]:
        """Those of :meth:`stats` that are others after each draw, once frozen."""
        return {}

    def place(self, state: Any, point: Point, proposal: Proposal | None = None) -> Any:
        """The chain is at ``point`` now: it moved there by ``proposal``, or (None) was put there from outside."""
        return state

    def log_ratio(self, state: Any, point: Point, proposal: Proposal, there: Point) -> float:
        """Everything in the ratio but the target, where it depends on the log density at either end."""
        return proposal.log_q_ratio

    def observe(self, state: Any, point: Point, move: str = "refresh") -> Any:
        """Learn from an evaluation that was no proposal of the sampler's: to measure the noise, or a climb's."""
        return state

    def standing(self, state: Any) -> tuple[np.ndarray, float, np.ndarray] | None:
        """Of one that ``climbs_by_itself``, once it has: a high state of the chain's, its log density, and a Cholesky
        factor of the covariance; else None.
        """
        return None

    def several(
        self, rng: np.random.Generator, point: Point, state: Any, surface: Any, n: int
    ) -> tuple[Point, Any] | None:  # fmt: skip
        """Where ``n`` transitions on a surrogate end, by compiled code; the point itself if none was accepted.

        The same as one after the other, with the same random numbers. None where there is no such way.
        """
        return None


_annotations: Any = cache(get_type_hints)


def acceptance_probability(log_density: float, proposed_log_density: float, log_q_ratio: float) -> float:
    """Metropolis-Hastings acceptance probability min(1, exp(log ratio)), always a number in [0, 1].

    A proposed log density of NaN or +inf is an error of the model's, not a good place to be: probability 0
    (Python's ``min(0.0, nan)`` is 0.0, which would accept it). From a current ``-inf`` any finite proposal
    is accepted.
    """
    log_ratio = proposed_log_density - log_density + log_q_ratio
    if math.isnan(log_ratio) or proposed_log_density == math.inf:
        return 0.0
    return math.exp(min(0.0, log_ratio))  # the cap at 1 is what Robbins-Monro needs


def accept(
    rng: np.random.Generator, log_density: float, proposed_log_density: float, log_q_ratio: float
) -> tuple[float, bool]:
    """Return (acceptance probability, accepted). Uses exactly one uniform, whatever the outcome.

    Exactness hangs on this line being the only place where a chain moves (Metropolis et al., 1953;
    Hastings, 1970).
    """
    probability = acceptance_probability(log_density, proposed_log_density, log_q_ratio)
    return probability, bool(rng.random() < probability)


def attainable(target_accept: float, noise_sd: float) -> float:
    """The acceptance probability under noise of a move that has ``target_accept`` without: what to tune a scale to.

    By ``target_accept`` itself a scale shrinks to nothing as soon as the noise alone keeps acceptance below it. Were
    the move's own part of the log ratio normal with mean -v/2 and variance v, a move would be accepted with
    probability 2 Phi(-sqrt(v) / 2); two estimates with noise of sd s add 2 s^2 to v (Sherlock et al., 2015). Best
    scales hardly change with the noise, and so tuned they do not change at all. (Acceptance relative to that of a move
    of length zero has to be capped at 1, and what is capped has a mean below 1 at a standstill: 0.33 for s = 1.8.)
    """
    if noise_sd == 0.0:
        return target_accept
    half = scipy.special.ndtri(0.5 * target_accept)
    return 2.0 * float(scipy.special.ndtr(-math.hypot(half, noise_sd / math.sqrt(2.0))))
