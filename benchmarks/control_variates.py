"""``pk.expectations``: errors of means and sds with the surrogate as a control variate, and when that is refused.

The twelve targets of ``cold_start`` from its over-dispersed starts, 16 chains that learn together, as
``pk.sample(control_variates=True)``. Errors are root mean squares over coordinates, of means in posterior sds and of
log sds. z is the error of a mean in its own standard error, root mean square over coordinates and runs: calibrated at
1. "refused": the gate is closed, or the surrogate's own chains do not agree; the errors of what would have come out are
shown beside, to judge the gate by.

    python -m benchmarks.control_variates           # --targets, --totals, --seeds; 20 seconds of processor time a run
    python -m benchmarks.control_variates --table
    python -m benchmarks.control_variates --verify  # do stale cells come out the same?
"""

import argparse
import math
from pathlib import Path

import numpy as np
import xarray as xr

from benchmarks import basics, provenance, report
from benchmarks.cold_start import TARGET_MODULES, TARGETS
from benchmarks.few_evaluations.samplers import Cell, plan, starts
from pymc_kameleon import control_variates
from pymc_kameleon.samplers.modes.chains import Chains
from pymc_kameleon.samplers.pooled import audits
from pymc_kameleon.samplers.pooled import chains as pooled_chains

RESULTS = Path(__file__).parent / "results"
STORE, TEXT = RESULTS / "control_variates.json", RESULTS / "control_variates.md"
TOTALS, CHAINS, SEEDS = (1000, 2000), 16, 3


def run(name: str, total: int, seed: int) -> dict:
    """One run: as ``idata`` would be, in the target's coordinates."""
    cell, target = Cell("together", name, total, CHAINS, seed), TARGETS[name]
    points = starts(cell, CHAINS + 1)
    chains = Chains(
        points[-1], points[:-1], np.random.SeedSequence([seed, CHAINS]),
        plan(cell)._replace(audits=audits.AUDITS),
    )  # fmt: skip
    while not chains.done:
        chains.tell([target.numba_log_density(request.position) for request in chains.ask()])
    draws = pooled_chains.posterior(chains)
    if chains.free is None:
        return {"refused": "no surrogate, or several", "draws": draws.shape[1]}
    ratios = pooled_chains.log_ratios(chains)
    dims = ["chain", "draw", "i"]
    idata = {
        "posterior": xr.Dataset({"x": (dims, draws)}),
        "surrogate_posterior": xr.Dataset({"x": (dims, chains.free.positions)}),
        "control_variates": xr.Dataset(
            {
                "log_ratio": (["chain", "draw"], ratios["draws"]),
                "audit_log_ratio": ("audit", ratios["audits"]),
                "is_inside": (["a", "b"], chains.free.inside),
            }
        ),
    }
    return {"draws": draws.shape[1], **judged(idata, target)}


def judged(idata: dict, target) -> dict:
    """Errors with and without, and whether it is refused."""
    found: dict = {"refused": ""}
    try:
        table = control_variates.expectations(idata)
    except ValueError as error:
        found["refused"] = str(error)
        table = forced(idata)
    sd = np.sqrt(np.diag(target.cov))
    for label, mean, spread in (("with", "mean", "sd"), ("draws", "mean_draws", "sd_draws")):
        found[f"{label}_mean"] = _rms((table[mean] - target.mean) / sd)
        found[f"{label}_sd"] = _rms(np.log(table[spread] / sd))
    found["with_z"] = _rms((table["mean"] - target.mean) / table["mcse_mean"])
    found["draws_z"] = _rms((table["mean_draws"] - target.mean) / table["mcse_mean_draws"])
    found["controlled"] = float(table["controlled"].mean())
    return found


def forced(idata: dict):
    """What a closed gate has kept back."""
    with np.errstate(all="ignore"):
        group = idata["control_variates"]
        weights, inside = np.exp(group["log_ratio"].values), group["is_inside"].values.astype(float)
        x, free = (idata[name]["x"].values for name in ("posterior", "surrogate_posterior"))
        rows = [
            control_variates._row(x[..., i], weights, free[..., i], inside)
            for i in range(x.shape[-1])
        ]
    import pandas as pd

    return pd.DataFrame(rows)


def _rms(x) -> float:
    return float(np.sqrt(np.mean(np.square(np.asarray(x, dtype=float)))))


def code() -> str:
    """Digest of what a cell is made with."""
    own = provenance.own_digest("pymc_kameleon.control_variates")
    return f"{own}, {provenance.digest('pymc_kameleon.samplers.modes.chains', *TARGET_MODULES)}"


def verify() -> None:
    """Of stale cells the first of a target and a total is made anew, and speaks for the others if it is the same."""
    groups: dict[tuple, dict] = {}
    for key, cell in sorted(report.load_cells(STORE).items()):
        if cell["code"] != code():
            target, total, _ = key.split(" | ")
            groups.setdefault((target, total, cell["code"]), {})[key] = cell
    for (target, total, _), group in groups.items():
        key = min(group)
        made = report.rounded(run(target, int(total), int(key.split(" | ")[2]))) | {"code": code()}
        same = all(group[key].get(name) == made[name] for name in made if name != "code")
        found = {k: {**cell, "code": code()} for k, cell in group.items()} if same else {key: made}
        report.save_cells(STORE, found, basics.versions())
        print(key, "the same" if same else "another run", len(group), flush=True)


def table(cells: dict) -> str:
    """The result."""
    parts = [
        "# Control variates\n",
        (__doc__ or "").split("\n\n    python")[0].split("\n", 2)[2] + "\n",
    ]
    used, z = [], {"with": [], "draws": []}
    for total in TOTALS:
        lines = [
            f"## {total:,} evaluations in all\n",
            "| target | refused | means: controlled | draws | sds: controlled | draws | means of the refused |",
            "|---|---|---|---|---|---|---|",
        ]
        for target in TARGETS:
            runs = [c for k, c in sorted(cells.items()) if k.startswith(f"{target} | {total} | ")]
            runs = [c for c in runs if "with_mean" in c]
            if not runs:
                continue
            good, bad = (
                [r for r in runs if bool(r["refused"]) == closed] for closed in (False, True)
            )
            used += [(r["draws_mean"], r["with_mean"]) for r in good if r["controlled"] > 0]
            for label, found in z.items():
                found += [r[f"{label}_z"] for r in good]
            columns = [
                ", ".join(f"{r[name]:.3f}" for r in good)
                for name in ("with_mean", "draws_mean", "with_sd", "draws_sd")
            ]
            kept = ", ".join(f"{r['with_mean']:.2f} against {r['draws_mean']:.2f}" for r in bad)
            lines.append(
                f"| {target} | {len(bad)} of {len(runs)} | {' | '.join(columns)} | {kept} |"
            )
        if len(lines) > 3:
            parts.append("\n".join(lines) + "\n")
    if used:
        ratios = np.log([b / a for a, b in used])
        summary = (
            f"Not refused: {len(z['with'])} runs. Where it was used the error of the means is "
            f"{math.exp(ratios.mean()):.2f} times that of the draws (geometric mean; worst "
            f"{math.exp(ratios.max()):.2f}); z is {_rms(z['with']):.2f}, of the draws alone {_rms(z['draws']):.2f}.\n"
        )
        parts.insert(2, summary)
    return "\n".join(parts)


def main() -> None:
    """Run what is missing, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--targets", nargs="+", choices=list(TARGETS), default=list(TARGETS))
    parser.add_argument("--totals", nargs="+", type=int, default=TOTALS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--verify", action="store_true")
    chosen = parser.parse_args()
    if chosen.verify:
        verify()
    jobs = [(t, n, s) for s in range(chosen.seeds) for n in chosen.totals for t in chosen.targets]
    for job in [] if chosen.table or chosen.verify else jobs:
        key = " | ".join(map(str, job))
        if report.load_cells(STORE).get(key, {}).get("code") != code():
            made = report.rounded(run(*job)) | {"code": code()}
            report.save_cells(STORE, {key: made}, basics.versions())
            print(key, {k: v for k, v in made.items() if k != "code"}, flush=True)
    cells = report.load_cells(STORE)
    stale = provenance.stale_cells(("control variates", c["code"], code()) for c in cells.values())
    provenance.write(TEXT, table(cells), stale_cells=stale)


if __name__ == "__main__":
    main()
