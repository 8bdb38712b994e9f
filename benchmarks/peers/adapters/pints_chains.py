"""PINTS: an adaptive chain and a population, by its ask and tell, so that every evaluation is seen."""

import logging

import numpy as np

from benchmarks.peers.adapters import Draws, Task
from benchmarks.peers.counting import StoppedError

DREAM_CHAINS = 8


def haario_bardenet(task: Task) -> Draws:
    """``HaarioBardenetACMC``, PINTS' default; as its controller, 200 draws without adaptation at first."""
    import pints

    logging.getLogger("pints").setLevel(logging.ERROR)
    np.random.seed(task.number)  # noqa: NPY002  PINTS draws from the global generator
    chain = pints.HaarioBardenetACMC(task.starts(1)[0])
    chain.set_initial_phase(True)
    draws = []
    try:
        while True:
            if len(draws) == 200:
                chain.set_initial_phase(False)
            told = chain.tell(task.log_density(chain.ask()))
            if told is not None:
                draws.append(np.array(told[0]))
    except StoppedError:
        pass
    return Draws(np.array(draws[len(draws) // 2 :])[None])


def dream(task: Task) -> Draws:
    """``DreamMCMC``, eight chains; as its controller, 200 rounds in the initial phase."""
    import pints

    np.random.seed(task.number)  # noqa: NPY002
    chains = pints.DreamMCMC(DREAM_CHAINS, task.starts(DREAM_CHAINS))
    chains.set_initial_phase(True)
    rounds = []
    try:
        while True:
            if len(rounds) == 200:
                chains.set_initial_phase(False)
            told = chains.tell(np.array([task.log_density(x) for x in chains.ask()]))
            if told is not None:
                rounds.append(np.array(told[0]))
    except StoppedError:
        pass
    made = np.array(rounds[len(rounds) // 2 :])
    return Draws(made.swapaxes(0, 1), note=f"{DREAM_CHAINS} chains")
