"""A cell: one run of a sampler on a target, at a total of evaluations."""

import math
import time
import warnings
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from benchmarks import basics, cold_start, provenance, report
from benchmarks.cold_start import TARGETS
from benchmarks.few_evaluations.samplers import OURS, RIVALS, RUN, Cell
from benchmarks.peers import cells as peer_cells
from benchmarks.peers import samplers as peers
from benchmarks.peers.adapters import CannotRunError, Draws
from benchmarks.peers.counting import Counted, StoppedError
from benchmarks.peers.measures import effective, moments
from pymc_kameleon import convergence

STORE = Path(__file__).parents[1] / "results" / "few_evaluations.json"
SECONDS = 100.0  # of processor time of a rival's run


def run(cell: Cell) -> dict:
    """What is stored of a cell."""
    target = TARGETS[cell.target]
    begin = time.process_time()
    most = math.inf if cell.sampler in OURS else SECONDS
    counted = Counted(target.numba_log_density, cell.total, begin + most)
    made: dict = {"code": code(cell.sampler)}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            with peer_cells.alarm(most if math.isfinite(most) else 86400.0):
                draws = RUN[cell.sampler](cell, counted)
        except CannotRunError as error:
            made["failed"] = str(error)
        except StoppedError:
            made["failed"] = f"not ready after {SECONDS:.0f} seconds of processor time"
        except Exception as error:  # of a package: it is reported, and the others go on
            if cell.sampler in OURS:
                raise
            first = (str(error).splitlines() or [""])[0]
            made["failed"] = f"{type(error).__name__}: {first[:100]}"
        else:
            made |= judged(draws, target)
    return made | {"evaluations": counted.evaluations, "seconds": time.process_time() - begin}


def judged(draws: Draws, target) -> dict:
    """Effective draws, R-hat where there are chains, errors."""
    mean, sd = moments(draws)
    truth = np.sqrt(np.diag(target.cov))
    errors = (mean - target.mean) / truth, np.log(np.maximum(sd, 1e-300) / truth)
    found = {
        "mean_error": float(np.sqrt(np.mean(np.square(errors[0])))),
        "sd_error": float(np.sqrt(np.mean(np.square(errors[1])))),
        "draws": draws.values.shape[1],
    }
    if draws.kind == "chains" and draws.weights is None:
        verdict = convergence.judge(draws.values)
        return found | {"ess": verdict.ess, "rhat": verdict.rhat}
    return found | {"ess": effective([draws]), "rhat": None}


@cache
def code(sampler: str) -> str:
    """Digest of the code that makes a sampler's cells; "" if its package is not installed."""
    if sampler in OURS:
        return provenance.digest(*OURS[sampler], *cold_start.TARGET_MODULES)
    package = peers.SAMPLERS[RIVALS[sampler]].package
    try:
        return f"{package} {version(package)}, {provenance.digest(*cold_start.TARGET_MODULES)}"
    except PackageNotFoundError:
        return ""


# --- the store --------------------------------------------------------------------------------------


def load() -> dict:
    """Cells by key."""
    return report.load_cells(STORE)


def _rounded(cell):
    def short(v):
        if not isinstance(v, float):
            return v
        return float(f"{v:.4g}") if math.isfinite(v) else None

    return {name: short(value) for name, value in cell.items()}


def run_all(cells: list[Cell], minutes: float) -> None:
    """Run and store what the present code has not made."""
    deadline = time.monotonic() + 60.0 * minutes
    for cell in cells:
        stored = load().get(cell.key)
        if stored is not None and stored["code"] == code(cell.sampler):
            continue
        if time.monotonic() > deadline:
            print("stopped at the time limit; the same command goes on")
            return
        made = _rounded(run(cell))
        report.save_cells(STORE, {cell.key: made}, basics.versions())
        print(cell.key, {k: v for k, v in made.items() if k != "code"}, flush=True)


def verify() -> None:
    """Stale cells of ours: the cheapest of a target and a total is made anew, and speaks for the others if the same.

    A change that a target's runs do not meet makes the same draws, so the same figures in every digit.
    """
    groups: dict[tuple, dict[str, dict]] = {}
    for key, cell in load().items():
        sampler, target, total, *_ = key.split(" | ")
        if sampler in OURS and cell["code"] != code(sampler):
            groups.setdefault((sampler, target, total, cell["code"]), {})[key] = cell
    for (sampler, target, total, _), group in groups.items():
        key = min(group, key=lambda k: group[k]["seconds"])
        *_, chains, seed = key.split(" | ")
        made = _rounded(run(Cell(sampler, target, int(total), int(chains), int(seed))))
        same = all(group[key].get(f) == made[f] for f in made if f not in ("seconds", "code"))
        anew = {k: {**cell, "code": made["code"]} for k, cell in group.items()} if same else {}
        report.save_cells(STORE, anew | {key: made}, basics.versions())
        print(
            f"{sampler}, {target}, {total}: {'the same' if same else 'other draws'}, {len(group)} cells",
            flush=True,
        )
