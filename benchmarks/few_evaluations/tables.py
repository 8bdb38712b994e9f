"""The tables of what is stored."""

import json
import math

import numpy as np

from benchmarks import provenance
from benchmarks.cold_start import TARGETS
from benchmarks.few_evaluations import cells, first, workers
from benchmarks.few_evaluations.samplers import ALONE, RUN, VARIATIONAL

TOTALS, CHAINS = (500, 1000, 2000, 5000), (4, 16, 64)
GOAL = (2000, 16, 300.0, 1.02)  # total, chains, effective draws, R-hat: on eight of the twelve
LABELS = {
    "together": "together", "alone": "alone", "demetropolisz": "pm.DEMetropolisZ", "emcee": "emcee",
    "smc": "pm.sample_smc", "pocomc": "pocoMC", "pyvbmc": "PyVBMC",
}  # fmt: skip
TEXT = """\
# Few evaluations

The twelve targets of `cold_start`, from its over-dispersed starts; nothing is set by hand, and every evaluation
counts: starts, tuning and draws. A budget is a *total*, for all chains together.

- "together": `pk.sample`'s chains (`pymc_kameleon.samplers.pooled`), 4, 16 and 64 of them;
- "alone": `KamiltonianStep`'s sampler in four independent chains, with its arrival, half of the budget tuning;
- `pm.DEMetropolisZ`, four chains, half of the budget tuning;
- emcee, 32 walkers (40 in 20 dimensions), differential evolution and snooker moves, half of the budget thrown away;
- `pm.sample_smc` and pocoMC, which are given a uniform prior, ten true sds to both sides of the true mean: the
  largest population whose run fits into the budget;
- PyVBMC, an approximation: its draws are as many as one likes, only its errors say anything.

Effective draws are ArviZ's bulk ones of the worst coordinate; of particles Kish's or how many are distinct, which
see no mode that is missing. R-hat is the worst coordinate's, rank-normalised, of all chains (of an ensemble's walkers:
they are no independent chains, and their R-hat says less). Errors are of the pooled mean in posterior sds and of the
log sd, root mean squares over coordinates. With four to eight draws a chain, or chains that have not met, effective
draws mean little: look at the errors.
"""


def _of(stored, *wanted):
    found: dict[str, dict] = {}
    for key, cell in stored.items():
        sampler, target, total, chains, seed = key.split(" | ")
        if (sampler, int(total), int(chains)) == wanted:
            found.setdefault(target, {})[int(seed)] = cell
    return found


def _median(by_seed, name):
    values = [cell.get(name) for cell in by_seed.values()]
    values = [v for v in values if v is not None]
    return float(np.median(values)) if values else math.nan


def goal_table(stored: dict) -> str:
    """The goal's row, every seed by itself."""
    total, chains, least, most = GOAL
    found = _of(stored, "together", total, chains)
    lines = [
        f"## {total:,} evaluations in all, {chains} chains\n",
        "| target | effective draws, seed by seed | R-hat | error of means, sds | error of sds | reached |",
        "|---|---|---|---:|---:|---|",
    ]
    always = mostly = 0
    for target in TARGETS:
        by_seed = found.get(target, {})
        if not by_seed:
            continue
        runs = [by_seed[seed] for seed in sorted(by_seed)]
        good = [r["ess"] >= least and (r["rhat"] or math.inf) < most for r in runs]
        always += all(good)
        mostly += 2 * sum(good) > len(good)
        ess = ", ".join(f"{r['ess']:.0f}" for r in runs)
        rhat = ", ".join("-" if r["rhat"] is None else f"{r['rhat']:.3f}" for r in runs)
        lines.append(
            f"| {target} | {ess} | {rhat} | "
            f"{_median(by_seed, 'mean_error'):.2f} | {_median(by_seed, 'sd_error'):.2f} | "
            f"{sum(good)} of {len(good)} |"
        )
    lines.append(
        f"\nAt least {least:.0f} effective draws and R-hat below {most}: {always} of {len(found)} targets with every "
        f"seed, {mostly} with most.\n"
    )
    return "\n".join(lines)


def total_table(stored: dict, total: int) -> str:
    """Ours by numbers of chains at one total: medians over seeds."""
    columns = [("together", size) for size in CHAINS] + [("alone", ALONE)]
    heads = [f"{LABELS[s]}, {size} chains" for s, size in columns]
    return _medians(
        stored, total, columns, heads, f"## {total:,} evaluations in all: ours by chains\n"
    )


def rivals_table(stored: dict, total: int) -> str:
    """Others at one total, beside 16 chains that learn together."""
    rivals = [name for name in RUN if name not in cells.OURS]
    columns = [("together", GOAL[1])] + [(name, ALONE) for name in rivals]
    heads = [LABELS[name] + (", 16 chains" if name == "together" else "") for name, _ in columns]
    return _medians(stored, total, columns, heads, f"## {total:,} evaluations in all: others\n")


def _medians(stored, total, columns, heads, title):
    found = {column: _of(stored, column[0], total, column[1]) for column in columns}
    shown = [(c, h) for c, h in zip(columns, heads, strict=True) if found[c]]
    if len(shown) < 2 and found[columns[0]] and total == GOAL[0]:  # stands in the goal's table
        return ""
    if not any(c != ("together", GOAL[1]) for c, _ in shown):
        return ""
    seeds = max(len(by_seed) for c, _ in shown for by_seed in found[c].values())
    lines = [
        title,
        f"Effective draws; R-hat; errors of means and of sds. Medians over at most {seeds} seeds.\n",
        f"| target | {' | '.join(h for _, h in shown)} |",
        f"|---|{'---|' * len(shown)}",
    ]
    for target in TARGETS:
        row = [_entry(found[column].get(target)) for column, _ in shown]
        lines.append(f"| {target} | {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def _entry(by_seed):
    """One sampler on one target."""
    if not by_seed:
        return ""
    made = {seed: cell for seed, cell in by_seed.items() if "failed" not in cell}
    if not made:
        return next(iter(by_seed.values()))["failed"]
    ess, rhat, mean, sd = (
        _median(made, name) for name in ("ess", "rhat", "mean_error", "sd_error")
    )
    parts = [
        f"{ess:.0f}" if math.isfinite(ess) else "-",
        f"{rhat:.3f}" if math.isfinite(rhat) else "-",
    ]
    if len(made) < len(by_seed):
        parts.append(f"{len(made)} of {len(by_seed)} runs")
    return "; ".join([*parts, f"{mean:.2f}, {sd:.2f}"])


def report(stored: dict) -> str:
    """The whole result."""
    parts = [TEXT, goal_table(stored)]
    parts += [total_table(stored, total) for total in TOTALS]
    parts += [rivals_table(stored, total) for total in (VARIATIONAL, *TOTALS)]
    if first.STORE.exists():
        parts.append(first.table(json.loads(first.STORE.read_text())))
    if workers.STORE.exists():
        parts.append(workers.table(json.loads(workers.STORE.read_text())))
    return "\n".join(part for part in parts if part)


def write() -> None:
    """``results/few_evaluations.md``."""
    stored = cells.load()
    codes = []
    for key, cell in stored.items():
        name = key.split(" | ")[0]
        codes.append((name, cell["code"], cells.code(name) or cell["code"]))
    text = cells.STORE.with_suffix(".md")
    provenance.write(text, report(stored), stale_cells=provenance.stale_cells(codes))
