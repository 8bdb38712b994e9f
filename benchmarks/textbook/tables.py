"""Tables of what is stored."""

import math
from pathlib import Path

import numpy as np

from benchmarks import basics, provenance
from benchmarks.report import digits, table
from benchmarks.textbook.measures import CONVERGED
from benchmarks.textbook.posterior import reference

RESULTS = Path(__file__).parents[1] / "results"
SUMMARY = [
    "step", "good", "converged", "silently wrong", "geometric mean", "× best of PyMC's", "µs per evaluation",
]  # fmt: skip
GOOD = 300.0  # effective draws per 1000 evaluations


def write(cells: list, stored: dict, name: str) -> str:
    """results/NAME.md of those cells that are stored; returns the tables."""
    found: dict[tuple[str, str], list[dict]] = {}
    for cell in cells:
        if cell.key in stored:
            found.setdefault((cell.model, cell.step), []).append(stored[cell.key])
    models = list(dict.fromkeys(m for m, _ in found))
    steps = list(dict.fromkeys(s for _, s in found))
    seeds = {len(v) for v in found.values()}
    evaluations = {cell.evaluations for cell in cells}
    text = "\n\n".join([
        "# Textbook models, from where pm.sample starts",
        _introduction(seeds, evaluations),
        f"{basics.versions()}.",
        "## Effective draws per 1000 evaluations (R-hat)",
        table(["model (d)", *steps], [[_title(m), *(_efficiency(found.get((m, s))) for s in steps)] for m in models]),
        "## In short",
        table(SUMMARY, [_summary(s, models, found) for s in steps]),
        "## Evaluations until a chain was within the level, chain by chain (nats below it, where it never was)",
        table(["model (d)", *steps], [[_title(m), *(_arrival(found.get((m, s))) for s in steps)] for m in models]),
        "## Errors against the reference: a mean's, in standard errors | in sds; |log sd ratio|",
        table(["model (d)", *steps], [[_title(m), *(_error(found.get((m, s))) for s in steps)] for m in models]),
    ])  # fmt: skip
    provenance.write(
        RESULTS / f"{name}.md", text, name if name in provenance.RESULTS else "textbook"
    )
    return text


def _introduction(seeds, evaluations):
    counts = (
        " to ".join(str(f(seeds)) for f in (min, max))
        if len(seeds) > 1
        else f"{max(seeds, default=0)}"
    )
    budgets = ", ".join(f"{e:,}" for e in sorted(evaluations))
    return (
        "`python -m benchmarks.textbook`. Four chains a seed from the model's initial point + U(-1, 1) in "
        f"unconstrained coordinates, {budgets} evaluations each, a third of them tuning, seeds: {counts}. Effective "
        "draws: ArviZ's bulk ESS of the worst coordinate, all chains, geometric mean over the seeds; R-hat: the worst, "
        f"shown from {CONVERGED} on. **!** marks the silently wrong: R-hat below that in a seed in which a mean is "
        f"off by more than 5 standard errors. Good: at least {GOOD:g} and R-hat below {CONVERGED} in every seed. The "
        "level is the reference's highest log density less d/2 + 3."
    )  # fmt: skip


def _title(model):
    return f"{model} ({len(reference(model).mean)})"


def _worst_rhat(cells):
    return max(math.inf if c["rhat"] is None else c["rhat"] for c in cells)


def _mean_ess(cells):
    return math.exp(np.mean([math.log(c["ess"]) for c in cells]))


def _efficiency(cells):
    if not cells:
        return "–"
    rhat = _worst_rhat(cells)
    mark = " **!**" if any(c["silently_wrong"] for c in cells) else ""
    text = (
        f"{digits(_mean_ess(cells))} ({rhat:.2f}){mark}"
        if rhat >= CONVERGED
        else f"{digits(_mean_ess(cells))}{mark}"
    )
    return text


def _arrival(cells):
    if not cells:
        return "–"
    found = []
    for c in cells:
        found += [
            f"no ({b:.3g})" if a is None else f"{a}"
            for a, b in zip(c["arrived"], c["below"], strict=True)
        ]
    return ", ".join(found)


def _error(cells):
    if not cells:
        return "–"
    return " ".join(digits(max(c[f] for c in cells)) for f in ("mean_z", "mean_sd", "log_sd"))


def _summary(step, models, found):
    own = {m: found[m, step] for m in models if (m, step) in found}
    converged = {m for m, cells in own.items() if _worst_rhat(cells) < CONVERGED}
    good = {m for m in converged if min(c["ess"] for c in own[m]) >= GOOD}
    ratios = [
        _mean_ess(cells) / max(pymc) for m, cells in own.items()
        if (pymc := [_mean_ess(c) for (n, s), c in found.items() if n == m and s.startswith("pm.")])
    ]  # fmt: skip
    wrong = sum(any(c["silently_wrong"] for c in cells) for cells in own.values())
    every = [c for cells in own.values() for c in cells]
    cost = 1e6 * sum(c["seconds"] for c in every) / sum(c["evaluations"] for c in every)
    mean = math.exp(np.mean([math.log(_mean_ess(cells)) for cells in own.values()]))
    relative = digits(math.exp(np.mean(np.log(ratios)))) if ratios else "–"
    of = len(own)
    return [
        step,
        f"{len(good)}/{of}",
        f"{len(converged)}/{of}",
        str(wrong),
        digits(mean),
        relative,
        digits(cost),
    ]
