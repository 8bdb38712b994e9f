"""``pk.expectations``: errors of means and sds with the surrogate as a control variate, and when that is refused.

The twelve targets of ``cold_start``, 16 chains that learn together, as ``pk.sample(control_variates=True)``.

    python -m benchmarks.control_variates           # 20 seconds of processor time a run
"""

import numpy as np
import xarray as xr

from benchmarks import few_evaluations, report
from benchmarks.basics import geometric
from benchmarks.cells import Benchmark, Cell
from benchmarks.targets import TARGETS
from pymc_kameleon.samplers.pooled import chains as pooled_chains
from pymc_kameleon.samplers.pooled.checks import audits
from pymc_kameleon.verdict import control_variates

TOTALS, CHAINS = (1000, 2000), 16


def measure(cell: Cell) -> dict:
    """One run: as ``idata`` would be, in the target's coordinates."""
    target = TARGETS[cell.problem]
    chains = few_evaluations.pooled(cell, CHAINS, target.numba_log_density, audits.AUDITS)
    draws = pooled_chains.posterior(chains)
    if chains.free is None:
        return {"refused": "no surrogate, or several", "draws": draws.shape[1]}
    ratios = chains.log_ratios()
    dims = ["chain", "draw", "i"]
    idata = {
        "posterior": xr.Dataset({"x": (dims, draws)}),
        "surrogate_posterior": xr.Dataset({"x": (dims, chains.free.positions)}),
        "control_variates": xr.Dataset({
            "log_ratio": (["chain", "draw"], ratios["draws"]), "audit_log_ratio": ("audit", ratios["audits"]),
            "is_inside": (["a", "b"], chains.free.inside),
        }),
    }  # fmt: skip
    return {"draws": draws.shape[1], **judged(idata, target)}


def judged(idata: dict, target) -> dict:
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
        rows = [control_variates._row(x[..., i], weights, free[..., i], inside) for i in range(x.shape[-1])]
    import pandas as pd

    return pd.DataFrame(rows)


def _rms(x) -> float:
    return float(np.sqrt(np.mean(np.square(np.asarray(x, dtype=float)))))


def page(cells: dict[Cell, dict]) -> str:
    parts, used, z = [], [], {"with": [], "draws": []}
    for total in TOTALS:
        rows = []
        for target in TARGETS:
            runs = [m for c, m in sorted(cells.items()) if (c.problem, c.budget) == (target, total)]
            runs = [m for m in runs if "with_mean" in m]
            good, bad = [m for m in runs if not m["refused"]], [m for m in runs if m["refused"]]
            used += [(m["draws_mean"], m["with_mean"]) for m in good if m["controlled"] > 0]
            for label, found in z.items():
                found += [m[f"{label}_z"] for m in good]
            columns = [
                ", ".join(f"{m[name]:.3f}" for m in good) for name in ("with_mean", "draws_mean", "with_sd", "draws_sd")
            ]
            kept = ", ".join(f"{m['with_mean']:.2f} against {m['draws_mean']:.2f}" for m in bad)
            if runs:
                rows.append([target, f"{len(bad)} of {len(runs)}", *columns, kept])
        head = ["target", "refused", "means: controlled", "draws", "sds: controlled", "draws", "means of the refused"]
        parts += [f"## {total:,} evaluations in all", report.table(head, rows, left=7)] * bool(rows)
    tables, controlled, ratios = "\n\n".join(parts), len(z["with"]), [b / a for a, b in used]
    mean, worst, z = geometric(ratios), max(ratios), {label: _rms(found) for label, found in z.items()}
    return report.page("control_variates", locals())


if __name__ == "__main__":
    Benchmark("control_variates", measure, page).command(__doc__, ["controlled"], list(TARGETS), TOTALS, seeds=3)
