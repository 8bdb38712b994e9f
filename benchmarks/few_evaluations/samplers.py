"""The samplers that are compared: functions of a cell and a counted log density, which return draws."""

from typing import NamedTuple

import numpy as np

from benchmarks import basics, cold_start, core
from benchmarks.arriving import ArrivingWalk
from benchmarks.cold_start import TARGETS
from benchmarks.peers import samplers as peers
from benchmarks.peers.adapters import CannotRunError, Draws, Task
from benchmarks.peers.counting import Counted
from benchmarks.peers.targets import problem
from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian
from pymc_kameleon.samplers.modes.chains import Chains
from pymc_kameleon.samplers.pooled import chains as pooled_chains
from pymc_kameleon.samplers.pooled.plan import Plan, automatic

ALONE = 4  # chains, where they learn alone
WALKERS = 32  # or twice the dimension, which emcee demands
VARIATIONAL = 300  # evaluations: PyVBMC is made for few
OURS = {
    "together": ("pymc_kameleon.samplers.modes.chains",),
    "alone": ("pymc_kameleon.samplers.kamiltonian.values.sampler", "benchmarks.arriving"),
}
RIVALS = {  # by their names in ``benchmarks.peers``
    "demetropolisz": "demetropolisz", "emcee": "emcee_de", "smc": "smc", "pocomc": "pocomc", "pyvbmc": "pyvbmc",
}  # fmt: skip


class Cell(NamedTuple):
    """One run."""

    sampler: str
    target: str
    total: int
    chains: int
    seed: int

    @property
    def key(self) -> str:
        """Its name in the store."""
        return " | ".join(map(str, self))


def starts(cell: Cell, n: int) -> np.ndarray:
    """Over-dispersed points, shape (n, d): the same for every sampler."""
    rngs = basics.generators([cold_start._key(cell.target), cell.seed], n)
    return np.array([cold_start.start(cell.target, rng) for rng in rngs])


def together(cell: Cell, log_density: Counted) -> Draws:
    """The point that is evaluated first is a start, too: nobody knows a better one."""
    points = starts(cell, cell.chains + 1)
    chains = Chains(
        points[-1], points[:-1], np.random.SeedSequence([cell.seed, cell.chains]), plan(cell)
    )
    while not chains.done:
        chains.tell([log_density(request.position) for request in chains.ask()])
    return Draws(pooled_chains.posterior(chains))


def plan(cell: Cell) -> Plan:
    """As ``pk.sample(max_evaluations=total)``."""
    return automatic(TARGETS[cell.target].dim, cell.chains, most=cell.total)


def alone(cell: Cell, log_density: Counted) -> Draws:
    """Four chains, each with its share of the budget."""
    budget = cell.total // ALONE
    found = [
        core.run_chain(
            ValueKamiltonian, log_density, x, rng, tune=budget // 2, draws=budget - budget // 2,
            walk=ArrivingWalk,
        )
        for x, rng in zip(starts(cell, ALONE), basics.generators([cell.seed, 1], ALONE), strict=True)
    ]  # fmt: skip
    n = min(len(chain.draws) for chain in found)
    return Draws(np.array([chain.draws[:n] for chain in found]))


def demetropolisz(cell: Cell, log_density: Counted) -> Draws:
    """Four chains of PyMC's step, each with its share of the budget, half of which tunes it."""
    run = peers.function("demetropolisz")
    found = []
    for k in range(ALONE):
        share = Counted(log_density, cell.total // ALONE)
        task = Task(problem(cell.target), share, share.limit, cell.seed, k)
        found.append(run(task).values[0])
    n = min(map(len, found))
    return Draws(np.array([draws[-n:] for draws in found]))


def emcee(cell: Cell, log_density: Counted) -> Draws:
    """Walkers are chains here."""
    import emcee as package

    moves = [(package.moves.DEMove(), 0.8), (package.moves.DESnookerMove(), 0.2)]
    walkers = max(WALKERS, 2 * TARGETS[cell.target].dim)
    points = starts(cell, walkers)
    sampler = package.EnsembleSampler(
        walkers, points.shape[1], lambda x: float(log_density(np.ascontiguousarray(x))), moves=moves
    )
    state = np.random.RandomState(cell.seed).get_state()
    sampler.run_mcmc(package.State(points, random_state=state), cell.total // walkers - 1)
    made = sampler.get_chain().swapaxes(0, 1)
    return Draws(made[:, made.shape[1] // 2 :])


def once(name: str):
    """One run of a sampler of ``benchmarks.peers`` with the whole budget."""

    def run(cell: Cell, log_density: Counted) -> Draws:
        if name == "pyvbmc" and cell.total != VARIATIONAL:
            raise CannotRunError(f"it is run at {VARIATIONAL} evaluations")
        task = Task(problem(cell.target), log_density, cell.total, cell.seed, 0)
        return peers.function(RIVALS[name])(task)

    return run


RUN = {
    "together": together, "alone": alone, "demetropolisz": demetropolisz, "emcee": emcee,
    **{name: once(name) for name in ("smc", "pocomc", "pyvbmc")},
}  # fmt: skip
