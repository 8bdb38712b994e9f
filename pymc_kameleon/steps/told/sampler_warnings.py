"""How a step warns: through PyMC's own channel, the statistic ``warning``.

What a step says in a worker process stays there, on its standard error. A ``SamplerWarning`` among the statistics of a
draw travels to the main process, where PyMC logs it under ``pymc.stats.convergence`` when the draw arrives. PyMC drops
the statistic before it returns; ``pm.sample(keep_warning_stat=True)`` keeps the objects, with what was measured in
``extra``.
"""

import multiprocessing
import re
from typing import Any

import numpy as np
from pymc.stats.convergence import SamplerWarning, WarningType

__all__ = ["SamplerWarning", "SamplerWarnings", "WarningType"]


class SamplerWarnings:
    """What one chain of a step has to say, each thing once, in the name of the step, ``speaker``."""

    def __init__(self, speaker: str):
        self.speaker, self.chain = speaker, 0  # the chain's number in its run
        self._seed: tuple | None = None  # of the chain before, in this process
        self.reset()

    def reset(self) -> None:
        """Nothing has been said."""
        self.said: list[str] = []  # keys of what this chain has said or is about to say
        self.pending: list[SamplerWarning] = []  # what has not left with a draw yet

    def begin_chain(self, rng: np.random.Generator) -> None:
        """Find out which chain of its run begins; PyMC does not say.

        A worker process bears the number in its name. Chains that share a process come one after the other, and their
        generators are spawned one after the other from one seed: where their order starts anew, a run does.
        """
        worker = re.fullmatch(r"worker_chain_(\d+)", multiprocessing.current_process().name)
        sequence = getattr(rng.bit_generator, "seed_seq", None)
        seed = (getattr(sequence, "entropy", None), getattr(sequence, "spawn_key", ()))
        if worker:
            self.chain = int(worker[1])
        elif self._seed is not None and seed[0] == self._seed[0] and seed[1] > self._seed[1]:
            self.chain += 1
        else:
            self.chain = 0
        self._seed = seed

    def add(
        self, key: str, message: str, kind: WarningType = WarningType.BAD_PARAMS, *, whole_run: bool = False,
        level: str = "warn", **extra: Any,
    ) -> None:  # fmt: skip
        """Say ``message`` with the next draw, unless this chain has said ``key``, what it is about, already.

        What is true of every chain alike, of the ``whole_run``, only the first says, and without a number; ``level`` is
        "info" for what is no warning; ``extra`` was measured, for programs: finite numbers and strings.
        """
        if key in self.said or (whole_run and self.chain != 0):
            return
        self.said.append(key)
        who = self.speaker if whole_run else f"{self.speaker}, chain {self.chain}"
        extra = {"key": key, "chain": self.chain, **extra}
        self.pending.append(SamplerWarning(kind, f"{who}: {message}", level, extra=extra))

    def take(self) -> SamplerWarning | None:
        """The next one, for the statistics of a draw."""
        return self.pending.pop(0) if self.pending else None
