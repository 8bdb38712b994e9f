"""The chain of the benchmarks' runner is the step's own.

    python -m benchmarks.core_check

For every step, the chain of ``core.run_chain`` and the chain of ``pm.sample`` must be the same numbers, for as long as
``pm.sample`` repeats itself; from the initial point, without an arrival. One minute.
"""

import argparse

import numpy as np
import pymc as pm

import pymc_kameleon
from benchmarks import core
from pymc_kameleon.targets import Banana


def main():
    argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0]).parse_args()
    target, tune, draws = Banana(0.03, 100.0, 4), 1200, 300
    steps = [getattr(pymc_kameleon, name) for name in dir(pymc_kameleon) if name.endswith("Step")]
    for step in steps:
        first, second = (_sample(step, target, tune, draws) for _ in range(2))
        # Rounding in BLAS may depend on where an array lies in memory, and fits of a surrogate amplify it.
        repeats = _length_of_agreement(first, second)
        rng, log_density, sampler = _first_chain(step, target)
        walk = core.Walk(
            lambda sampler=sampler: sampler, log_density, target.initial_point, rng, {}
        )
        ours = np.empty_like(first)
        for n in range(tune + draws):
            if n == tune:
                walk.freeze()
            walk.step(tuning=n < tune)
            ours[n] = walk.here.position
        agrees = _length_of_agreement(first, ours)
        print(f"{step.__name__}: {agrees} draws agree; pm.sample repeats itself for {repeats}")
        if agrees < 0.5 * repeats:
            raise SystemExit("The runner does not make the step's chain.")


def _sample(step, target, tune, draws):
    """All draws of ``pm.sample``, tuning included, shape (tune + draws, d)."""
    with target.pymc_model():
        trace = pm.sample(
            draws=draws, tune=tune, chains=1, cores=1, step=step(arrival=False), random_seed=1, progressbar=False,
            compute_convergence_checks=False, discard_tuned_samples=False, quiet=True,
        )  # fmt: skip
    return np.concatenate([g["x"].values[0] for g in (trace.warmup_posterior, trace.posterior)])


def _length_of_agreement(a, b):
    differs = np.abs(a - b).max(axis=1) > 1e-9 * np.abs(a).max()
    return int(differs.argmax()) if differs.any() else len(a)


def _first_chain(step, target):
    """The generator that ``pm.sample(random_seed=1)`` hands to the first chain, the step's log density and its sampler.

    The step's and not the target's: they differ by rounding, which fits of a surrogate to values amplify.
    """
    seen = []

    class Recorder(step):
        def _begin_chain(self, rng):
            super()._begin_chain(rng)
            seen.append(np.random.Generator(type(self.rng.bit_generator)()))
            seen[-1].bit_generator.state = self.rng.bit_generator.state

    with target.pymc_model():
        recorder = Recorder(arrival=False)
        pm.sample(
            draws=1, tune=0, chains=1, cores=1, step=recorder, random_seed=1, progressbar=False,
            compute_convergence_checks=False, quiet=True,
        )  # fmt: skip
    return seen[-1], recorder._density, recorder.sampler


if __name__ == "__main__":
    main()
