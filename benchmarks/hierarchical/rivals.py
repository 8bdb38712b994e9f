"""PyMC's own gradient-free samplers on the hierarchical models, as ``benchmarks.peers`` drives them.

They see the whole log density, black boxes included, each evaluation counted; half of them tuning. Chains start where
``pm.sample`` starts them, the particles of sequential Monte Carlo in the prior.
"""

import warnings

import numpy as np
import pymc as pm

from benchmarks.hierarchical.models import BOXES, MODELS, Kit
from benchmarks.peers.adapters import CannotRunError, Draws, Task, pymc_steps, sequential
from benchmarks.peers.counting import Counted
from benchmarks.peers.real import RealModel
from benchmarks.peers.targets import Problem

RIVALS = {
    "DEMetropolisZ": pymc_steps.demetropolisz, "Slice": pymc_steps.slice_step, "smc": sequential.smc,
    "NUTS": pymc_steps.nuts,
}  # fmt: skip
MADE_WITH = ("benchmarks.hierarchical.rivals", "benchmarks.peers.adapters.pymc_steps")


class Hierarchy(Problem):
    """A hierarchical model as the adapters take it."""

    def __init__(self, name: str):
        self.name, self.noisy, self.span, self.boxes = name, False, False, BOXES[name]
        self.real = RealModel(lambda: MODELS[name](Kit(black=True)), from_cube=np.asarray)


def run(name: str, rival: str, budget: int, seed: int, chains: int) -> tuple[list[Draws], int]:
    """Draws of each run, in the model's unconstrained coordinates, and how many evaluations all took."""
    problem, runs, spent = Hierarchy(name), [], 0
    if rival == "smc" and any(
        isinstance(rv.owner.op, pm.Flat) for rv in problem.posterior.model.free_RVs
    ):
        raise CannotRunError(f"{name} has no prior from which particles could come")
    for k in range(chains):
        log_density = Counted(problem.log_density(np.random.default_rng(k)), budget)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runs.append(RIVALS[rival](Task(problem, log_density, budget, seed, k)))
        spent += log_density.evaluations
    return runs, spent
