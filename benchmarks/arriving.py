"""A chain of :mod:`benchmarks.core` whose first tuning draws bring it to the typical set, as the steps' do."""

from benchmarks.core import Walk
from pymc_kameleon.samplers.arrival import search
from pymc_kameleon.samplers.arrival.phase import default_budget
from pymc_kameleon.samplers.seam import Known, Point


class ArrivingWalk(Walk):
    """As with the steps' option ``arrival``, see ``KernelStep``; in units of 1, where they take the prior's."""

    def __init__(self, algorithm, log_density, x, rng, options):
        super().__init__(algorithm, log_density, x, rng, options)
        budget = default_budget(len(x))
        if self.tune is not None:
            budget = max(1, min(budget, int(0.4 * self.tune)))
        self.arrival = search.init(*self.here[:2], scale=1.0, budget=budget)

    def _approach(self):
        state = self.arrival
        point = search.propose(self.rng, state)
        self.arrival = search.tell(self.rng, state, point, self.log_density(point))
        self._arrive()

    def _arrive(self):
        state = self.arrival
        row = state.current
        self.here = Point(state.positions[row].copy(), float(state.log_densities[row]))
        if state.done:
            self.here, self.arrival = Point(state.position.copy(), state.log_density), None
            known = Known(spent=state.evaluations - 1, **search.learned(state))
            state = self.sampler.init(self.rng, self.here.position, known)
            self.state = self.sampler.place(state, self.here)

    def freeze(self):
        """End tuning, and an arrival that is not there yet."""
        if self.arrival is not None:
            self.arrival = search.stop(self.arrival)
            self._arrive()
        super().freeze()

    def step(self, tuning):
        """One draw; returns its acceptance probability."""
        if self.arrival is not None:
            self._approach()
            return 0.0
        return super().step(tuning)
