"""Chains that learn together, from their starts to their draws: ask for points, tell their log densities.

    chains = Chains(...)
    while not chains.done:
        chains.tell([log_density(request.position) for request in chains.ask()])

Whoever holds that loop decides how the points of a round are evaluated; nothing here knows. A run is a function of its
seed, its options and the log densities told: told the same again it does the same again, which is how an interrupted
run is resumed.
"""

import math
from collections.abc import Callable
from itertools import compress
from typing import Any

import numpy as np

from pymc_kameleon.numerics import evaluations
from pymc_kameleon.samplers.arrival import circles
from pymc_kameleon.samplers.arrival import phase as arrival
from pymc_kameleon.samplers.modes import catalogue as geometry
from pymc_kameleon.samplers.pooled.beginning import Start, Warm
from pymc_kameleon.samplers.pooled.by_values import ByValues
from pymc_kameleon.samplers.pooled.checks import audits, looks, probes
from pymc_kameleon.samplers.pooled.checks.looks import Looks
from pymc_kameleon.samplers.pooled.climbs import Climbs
from pymc_kameleon.samplers.pooled.drawing import Request, Row
from pymc_kameleon.samplers.pooled.plan import Plan
from pymc_kameleon.samplers.seam import Point


class Chains:
    """Chains that share a surrogate, or one for each of the modes that they are in.

    Parameters
    ----------
    initial : ndarray of shape (d,)
        The model's initial point. Where the log density is not finite there, that is looked for among ``starts``, then
        ``elsewhere``.
    starts : ndarray of shape (chains, d)
        Over-dispersed.
    seed : numpy.random.SeedSequence
    plan : Plan
    scale : float or ndarray of shape (d,)
        Rough size of each coordinate.
    known : Evaluations, optional
        Points whose log density is known up to a constant, from an earlier run: the chains begin at some of them,
        which are evaluated again, and nothing climbs. ``starts`` then only says how many chains there are.
    far : ndarray of shape (n, d)
        Where looks begin after tuning, before any other: draws of the prior.
    elsewhere : ndarray of shape (n, d)
        Where chains begin if nowhere else. Default: nowhere.
    apply : callable
        ``map``, or one that computes the members' proposals side by side, in order, such as a thread pool's.
    learner : ByValues or ByFactors
        What is learned, and how. Default: the log density as a whole.
    angles : ndarray of shape (k,)
        Coordinates along which the log density repeats itself every 2 pi.

    Attributes
    ----------
    evaluated : Evaluations
    rounds : int
        In which something was evaluated.
    warmup, rows : list of Row
        Before the draws, and the draws.
    stopped : str
        Why there are fewer draws than planned.
    nonfinite, failed : int
        Evaluations that were not finite; of those, NaN or +inf: no density of zero, which -inf is ...
    failed_at : tuple or None
        ... and the last of them: point, value.
    """

    def __init__(
        self, initial, starts, seed, plan: Plan, *, scale=1.0, known=None, far=(), elsewhere=(), apply=map,
        learner=None, angles=(),
    ):  # fmt: skip
        self.initial, self.starts = np.array(initial, dtype=float), np.array(starts, dtype=float)
        self.plan = plan
        self.evaluated = evaluations.empty(len(self.initial))
        self.rounds = self.nonfinite = self.failed = 0
        self.failed_at: tuple | None = None
        self.warmup: list[Row] = []
        self.rows: list[Row] = []
        self.stopped = ""
        children = seed.spawn(len(starts) + 1)
        self.rng, *self.rngs = [np.random.default_rng(child) for child in children]
        self.learner = ByValues() if learner is None else learner
        self.elsewhere = elsewhere
        self.scale, self.far, self.apply = scale, far, apply if self.learner.side_by_side else map
        self.angles = np.array(angles, dtype=np.int64)
        self.window: circles.Window | None = None  # their period, once it is chosen
        self.hub: Any = None
        self.members: list = []
        self.modes = 1  # that are known
        self.refused = 0  # suspected modes that were none
        self.free: audits.Free | None = None  # draws of the surrogate, where audits are planned
        self.climbs: Climbs | None = None  # where they ended ...
        self.leaders: list[int] = []  # ... and which chains made them
        self.looks = Looks([], [], 0)
        self.groups = list(range(len(self.starts)))  # of every chain: who begins side by side
        self._phase: Any = Start(self) if known is None else Warm(self, known)
        self._asked: list[Request] = []
        self._inside: list[bool] = []  # of all that the phase asks, what is evaluated

    @property
    def phase(self) -> str:
        """What is going on."""
        return self._phase.name

    @property
    def done(self) -> bool:
        """Whether nothing is left to evaluate."""
        return self._phase.done

    @property
    def draws(self) -> bool:
        """Whether everything is frozen and the chains draw."""
        return self.phase == "draw"

    @property
    def nowhere(self) -> bool:
        """Whether the log density is finite at no point to begin at: nothing can follow."""
        return getattr(self._phase, "nowhere", False)

    def ask(self) -> list[Request]:
        """The points of the next round; none where every chain could make its draw without."""
        asked, window = self._phase.ask(), self.window
        # exactness hangs on there being no density outside of the angles' period
        self._inside = [window is None or bool(window.contains(request.position)) for request in asked]
        self._asked = list(compress(asked, self._inside))
        return self._asked

    def ahead(self, is_over: Callable[[], bool]) -> None:
        """Compute what comes next while what ``ask`` returned is evaluated elsewhere, until that ``is_over``.

        Changes no bit of the run: tuning adapts to what is found, and only the frozen chains of one mode can guess.
        """
        if self.draws:
            self._phase.drawing.ahead(is_over)

    def tell(self, values) -> None:
        """Take the log densities of what ``ask`` returned, in its order; or arrays, of each and what belongs to it."""
        found = iter(self.record(self._asked, values))
        self._phase.tell([next(found) if inside else -math.inf for inside in self._inside])
        made = self.rows or self.warmup
        if made and not made[-1].evaluations:
            made[-1] = made[-1]._replace(evaluations=self.evaluated.size)
        while self._phase.done and self._phase.next is not None:
            self._phase = self._phase.next()

    def excuse(self, x: np.ndarray) -> np.ndarray | None:
        """What stands for what the log density at ``x`` and black boxes return where they raise: at a look, which is by
        the way. None elsewhere.
        """
        looks = (r.position for r in self._asked if r.move == "look")
        if not any(np.array_equal(x, position) for position in looks):
            return None
        return np.full(1 + self.evaluated.outputs.shape[1], np.nan)

    def record(self, requests: list[Request], found) -> list[float]:
        """Take down what was found; a log density that is not finite is -inf."""
        values, outputs = evaluations.taken_apart(found)
        # NaN fails, too; not in a look, which is by the way
        failed = [k for k, v in enumerate(values) if not v < math.inf and requests[k].move != "look"]
        self.failed += len(failed)
        if failed:
            self.failed_at = requests[failed[-1]].position, float(values[failed[-1]])
        values = [float(v) if math.isfinite(v) else -math.inf for v in values]
        self.nonfinite += values.count(-math.inf)
        if requests:
            x, members, moves = zip(*requests, strict=True)
            made = evaluations.table(np.array(x), values, members, self.rounds, moves, outputs)
            self.evaluated = evaluations.merge([self.evaluated, made]) if self.evaluated.size else made
            self.rounds += 1
        return values

    def enclose(self, points: list[Point]) -> list[Point]:
        """One period of every angle, around the highest of ``points``, is the target from here on.

        Returns the points, brought into it. Not where values cannot be compared, nor where chains have yet to climb.
        """
        if not self.plan.climb or self.learner.sampler.climbs_by_itself:
            return points
        best = max(points, key=lambda p: p.log_density).position
        window = self.window = circles.around(self.angles, best)
        if window is None:
            return points
        self.evaluated, self.starts = window.evaluated(self.evaluated), window.wrapped(self.starts)
        self.far = window.wrapped(np.reshape(self.far, (-1, len(best))))
        if self.climbs is not None:
            ends = np.array([c.positions[c.current] for c in self.climbs.climbs])
            shifts = window.wrapped(ends) - ends
            climbs = tuple(arrival.moved(c, by) for c, by in zip(self.climbs.climbs, shifts, strict=True))
            self.climbs = self.climbs._replace(climbs=climbs)
        return [p._replace(position=window.wrapped(p.position)) for p in points]

    def left(self) -> float:
        """Evaluations that may still be made."""
        most = self.plan.max_evaluations
        return math.inf if most is None else most - self.evaluated.size

    def probed(self) -> probes.Found:
        """What the probes beside the draws have found: each is judged by the surrogate of the mode in which it is."""
        made, drawing = self.evaluated.move == "probe", self._phase.drawing
        x, y = self.evaluated.positions[made], self.evaluated.log_densities[made]
        drawn = np.array([row.log_densities for row in self.rows])
        modes = np.zeros(len(x), dtype=int)
        if len(drawing.hubs) > 1:
            modes = geometry.assign(drawing.members[0].state.catalogue, x)
        return probes.together(
            probes.judge(hub, x[modes == k], y[modes == k], drawn) for k, hub in enumerate(drawing.hubs)
        )

    def sought(self) -> looks.Found:
        """Whether the draws reach where the climbs ended."""
        return self.looks.found(self.rows)

    def log_ratios(self) -> dict[str, np.ndarray]:
        """How far the frozen surrogate lies above the log density, less its typical value, at the draws and the audits.

        Whatever was evaluated in C, by whom and when, and found outside the posterior's support stands among the
        audits, as ``inf``: of mass of exp(f) that the posterior has not, a hundred audits see 1 % in two runs of three.
        """
        free, evaluated = self.free, self.evaluated
        assert free is not None
        rows = (evaluated.move == "audit") | np.isneginf(evaluated.log_densities)
        drawn = [free.log_ratios(row.positions, row.log_densities) for row in self.rows]
        found = free.log_ratios(evaluated.positions[rows], evaluated.log_densities[rows])
        return {"draws": np.array(drawn).T, "audits": found[found > -math.inf]}


def posterior(run: Chains) -> np.ndarray:
    """The draws after tuning, shape (chains, draws, d); angles in the period around the last draw of the first chain.

    Chains that stay on the whole line may be in different ones, and are no farther apart for it.
    """
    if not run.rows:
        return np.zeros((len(run.starts), 0, len(run.initial)))
    draws = np.stack([row.positions for row in run.rows], axis=1)
    window = run.window or circles.around(run.angles, draws[0, -1])
    return draws if window is None else window.wrapped(draws)
