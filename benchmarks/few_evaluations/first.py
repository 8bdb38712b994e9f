"""Are the first draws of many short chains draws of the posterior already? They all begin where tuning ended."""

import json
from pathlib import Path

import numpy as np

from benchmarks.cold_start import TARGETS
from benchmarks.few_evaluations import cells
from benchmarks.few_evaluations.samplers import Cell, together
from benchmarks.peers.counting import Counted
from pymc_kameleon import convergence

STORE = Path(__file__).parents[1] / "results" / "few_evaluations_first.json"
CHAINS, TOTAL, SEEDS = 64, 5000, 3
BLOCKS = ((0, 5), (5, 20), (20, None))
ENOUGH, AGREED = 400.0, 1.02  # effective draws and (nested) R-hat of a run that is usable


def run(name: str, seed: int) -> dict:
    """Z of the means and of the squares of every block of draws, with the error between chains."""
    target = TARGETS[name]
    draws = together(
        Cell("together", name, TOTAL, CHAINS, seed), Counted(target.numba_log_density, TOTAL)
    ).values
    groups = [k * 4 // CHAINS for k in range(CHAINS)]
    judged = convergence.judge(draws, groups)
    usable = judged.ess >= ENOUGH and convergence.has_converged(judged)
    sd = np.sqrt(np.diag(target.cov))
    z = (draws - target.mean) / sd
    found = {"draws": draws.shape[1], "usable": bool(usable), "means": [], "squares": []}
    for a, b in BLOCKS:
        for label, values, truth in (("means", z, 0.0), ("squares", z**2, 1.0)):
            of_chains = values[:, a:b].mean(axis=1)
            error = of_chains.std(axis=0, ddof=1) / np.sqrt(CHAINS)
            found[label].append(((of_chains.mean(axis=0) - truth) / error).tolist())
    return found


def measure(targets, seeds: int = SEEDS) -> None:
    """Run what the present code has not made."""
    stored = json.loads(STORE.read_text()) if STORE.exists() else {}
    for seed in range(seeds):
        for name in targets:
            key, code = f"{name} | {seed}", cells.code("together")
            if stored.get(key, {}).get("code") == code:
                continue
            stored[key] = run(name, seed) | {"code": code}
            STORE.write_text(json.dumps(stored) + "\n")
            print(key, _row([stored[key]]), flush=True)


def _row(runs):
    def rms(label, k):
        return float(np.sqrt(np.mean(np.square([z for r in runs for z in r[label][k]]))))

    return [f"{rms('means', k):.1f}, {rms('squares', k):.1f}" for k in range(len(BLOCKS))]


def table(stored: dict) -> str:
    """Z of the first draws, and of the later ones."""
    lines = [
        f"## The first draws of {CHAINS} chains\n",
        f"{TOTAL:,} evaluations in all. z of the mean and of the mean square of a block of draws over all chains, by "
        "the error between chains: root mean squares over coordinates and runs, 1 where the block is unbiased. A run "
        f"is usable with {ENOUGH:.0f} effective draws and (nested) R-hat below {AGREED}.\n",
        "| target | usable | draws 1 to 5 | 6 to 20 | from 21 on |",
        "|---|---|---|---|---|",
    ]
    groups: dict[tuple, list] = {}
    for key, found in stored.items():
        groups.setdefault((key.split(" | ")[0], found["usable"]), []).append(found)
    for target in TARGETS:
        for usable in (True, False):
            runs = groups.get((target, usable), [])
            if runs:
                said = f"{len(runs)} runs" if usable else f"no, {len(runs)} runs"
                lines.append(f"| {target} | {said} | {' | '.join(_row(runs))} |")
    good = [r for (_, usable), runs in groups.items() if usable for r in runs]
    if good:
        lines.append(f"| all that are usable | {len(good)} runs | {' | '.join(_row(good))} |")
    return "\n".join(lines) + "\n"
