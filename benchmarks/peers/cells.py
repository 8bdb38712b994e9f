"""A cell: four runs of a sampler on a target, from four starts, at a budget of evaluations each."""

import math
import signal
import time
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import basics, report
from benchmarks.peers import samplers
from benchmarks.peers.adapters import CannotRunError, Draws, Task
from benchmarks.peers.counting import Counted, TimeSpentError
from benchmarks.peers.measures import measure
from benchmarks.peers.reference import moments
from benchmarks.peers.targets import problem

STORE = Path(__file__).parents[1] / "results" / "peers.json"
RUNS = 4
SECONDS, MOST_SECONDS = 30.0, 90.0  # of processor time of a cell: no run is begun, all have ended


class Cell(NamedTuple):
    """One row of the store."""

    sampler: str
    target: str
    budget: int
    seed: int

    @property
    def key(self) -> str:
        """Its name in the store."""
        return " | ".join(map(str, self))


def run(cell: Cell, seconds: float = SECONDS) -> dict:
    """What is stored of a cell."""
    begin = time.process_time()
    runs, evaluations, why = [], [], ""
    most = seconds * MOST_SECONDS / SECONDS
    with warnings.catch_warnings(), np.errstate(all="ignore"), alarm(most) as rung:
        warnings.simplefilter("ignore")
        try:
            for k in range(RUNS):
                if time.process_time() - begin > seconds:
                    raise TimeSpentError
                draws, spent = one_run(cell, k, begin + most)
                if rung:  # an adapter has taken what there was
                    raise TimeSpentError
                runs.append(draws)
                evaluations.append(spent)
        except TimeSpentError:
            why = f"{len(runs)} of {RUNS} runs, for want of time"
        except CannotRunError as error:
            why = str(error)
        except Exception as error:  # of a package: it is reported, and the others go on
            why = (
                f"{type(error).__name__}: {str(error).splitlines()[0][:100] if str(error) else ''}"
            )
    spent = {"seconds": time.process_time() - begin}
    if not runs:
        return {"failed": why, **spent}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = measure(runs, evaluations, *moments(cell.target))
    notes = sorted({run.note for run in runs} - {""})
    return {**found, **spent, "note": "; ".join([*notes, *[why] * bool(why)])}


@contextmanager
def alarm(seconds: float):
    """After so much processor time :class:`TimeSpentError` is raised, in the middle of an evaluation too.

    Far out a solver may take hours.
    """
    rung: list[bool] = []

    def ring(signum, frame):
        rung.append(True)
        raise TimeSpentError

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds + 0.1)
    try:
        yield rung
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def one_run(cell: Cell, k: int, deadline: float = math.inf) -> tuple[Draws, int]:
    """Draws of the run, and how often the log density was evaluated."""
    target = problem(cell.target)
    noise = np.random.default_rng([cell.seed, k, cell.budget, 11])
    log_density = Counted(target.log_density(noise), cell.budget, deadline)
    draws = samplers.function(cell.sampler)(Task(target, log_density, cell.budget, cell.seed, k))
    log_density.check_time()
    if not np.isfinite(draws.values).all():
        raise CannotRunError("draws that are not finite")
    return draws, log_density.evaluations


def load() -> dict[str, dict]:
    """Cells by key."""
    return report.load_cells(STORE)


def run_all(
    cells: list[Cell], minutes: float, again: bool = False, seconds: float = SECONDS
) -> None:
    """Run and store what the present code has not made."""
    deadline = time.monotonic() + 60.0 * minutes
    for cell in cells:
        if not samplers.installed(cell.sampler):
            continue
        stored, code = load().get(cell.key), samplers.code(cell.sampler)
        if stored is not None and stored["code"] == code and not again:
            continue
        if time.monotonic() > deadline:
            print("stopped at the time limit; the same command goes on", flush=True)
            return
        made = report.rounded(run(cell, seconds)) | {"code": code}
        report.save_cells(STORE, {cell.key: made}, basics.versions())
        print(
            time.strftime("%H:%M:%S"),
            cell.key,
            {k: v for k, v in made.items() if k != "code"},
            flush=True,
        )
