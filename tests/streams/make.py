"""A hundred draws of every step, stored: a change of the draws is then either intended or noticed.

``python -m tests.streams.make [step ...]`` writes ``<step>.npz`` beside this file, for all steps or those named; say
in the commit why the draws changed. Written with PyMC 5.28 on the C linker.
"""

import sys
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from tests.step_tester import CASES, make, sample

HERE = Path(__file__).parent
# Hundreds of leapfrog steps a draw: a last bit that another compiler rounds otherwise is another chain soon. That the
# same installation repeats itself to the last bit is tested in test_step_contract.py.
STORED = (*(name for name in CASES if name != "kamiltonian"), "adaptive_metropolis-arrival")
STATISTICS = ("accept", "scaling", "lp")


def banana():
    """A curved target in two dimensions, of different units."""
    with pm.Model() as model:
        x = pm.Flat("x", shape=2, initval=np.array([1.0, 0.0]))
        curve = 0.01 * x[1] + 0.5 * pt.sqr(x[0]) - 0.5
        pm.Potential("target", -0.5 * pt.sqr(x[0]) - 2.0 * pt.sqr(curve))
    return model


def stream(name):
    """What ``<name>.npz`` holds: draws (100, 2) and statistics (100,) after 200 draws of tuning."""
    model, (case, _, how) = banana(), name.partition("-")
    step = make(CASES[case], model, arrival=how == "arrival")
    # an arrival amplifies the last bits, with most seeds to another chain; with this one to 1e-7, by the kernels that
    # OpenBLAS has for four processors (OPENBLAS_CORETYPE=Zen, Haswell, Sandybridge, Prescott)
    seed = {"random_seed": 13} if how else {}
    idata = sample(step, model, draws=100, tune=200, chains=1, **seed)
    found = idata["sample_stats"]
    stats = {stat: found[stat].values[0] for stat in STATISTICS if stat in found}
    return {"x": idata["posterior"]["x"].values[0], **stats}


if __name__ == "__main__":
    for name in sys.argv[1:] or (*STORED, "shares"):
        if name == "shares":  # of the frozen Kamiltonian kernels, with surrogates that are wrong
            from tests.samplers import test_shares

            found = {chain: test_shares.stream(chain) for chain in test_shares.STREAMS}
        else:
            found = stream(name)
        np.savez_compressed(HERE / f"{name}.npz", **found)
