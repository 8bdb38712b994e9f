"""Simulation-based calibration (Talts et al., 2018): six models by every step, whole chains from cold, ranks.

For every replication parameters are drawn from the prior and data given them; a chain starts where ``pm.sample`` starts
it, tunes and draws; the true values are ranked among its draws. Then the tuned kernel is put at the true values and
must leave the posterior as it is (:mod:`benchmarks.calibration.drive` says why both). Three controls have to fail. A
budget is a number of replications, and every seed has others.

    python -m benchmarks.calibration                     # 100 replications of every cell; 40 minutes
    python -m benchmarks.calibration --seeds 3
    python -m benchmarks.calibration --samplers CMAStep --problems simplex --budgets 50
"""

from benchmarks.calibration.board import BENCHMARK, CONTROLS
from benchmarks.calibration.drive import RATIO_DROPPED, STEPS
from benchmarks.calibration.models import MODELS, NOISE_UNDERSTATED

if __name__ == "__main__":
    BENCHMARK.command(
        __doc__, [*STEPS, RATIO_DROPPED], [*MODELS, NOISE_UNDERSTATED], (100,), 1,
        lambda c: (c.problem, c.sampler) in CONTROLS or (c.problem in MODELS and c.sampler in STEPS),
    )  # fmt: skip
