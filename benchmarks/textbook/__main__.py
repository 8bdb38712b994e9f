"""The steps on textbook models, from where ``pm.sample`` starts: effective draws, errors, and what is silently wrong.

Four chains a seed from the model's initial point + U(-1, 1) in unconstrained coordinates; a third of the evaluations
are tuning. Evaluations are counted in the log density.

    python -m benchmarks.textbook                                    # all models, the default steps; 50 minutes
    python -m benchmarks.textbook --problems linear hmm --samplers KamiltonianStep pm.Slice --seeds 3
    python -m benchmarks.textbook --samplers KamiltonianStep:growth=1.5
    python -m benchmarks.textbook.reference                          # references of models that have none
"""

from benchmarks.textbook import MODELS
from benchmarks.textbook.board import BENCHMARK

STEPS = [
    "KamiltonianStep", "GaussianMixtureStep", "KameleonStep", "FastKameleonStep", "AdaptiveMetropolisStep",
    "pm.DEMetropolisZ", "pm.Slice",
]  # fmt: skip

if __name__ == "__main__":
    BENCHMARK.command(__doc__, STEPS, list(MODELS), (10_000,))
