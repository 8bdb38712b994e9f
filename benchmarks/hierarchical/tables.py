"""The report: what has been reached, the table, what is missing."""

import numpy as np

from benchmarks.basics import versions
from benchmarks.hierarchical import reference
from benchmarks.hierarchical.cells import SAMPLERS
from benchmarks.hierarchical.models import MODELS

BUDGETS = (300, 1000, 3000, 10_000)
LABELS = {
    "boxes": "`KamiltonianStep()`", "whole": '`learn="all"`', "DEMetropolisZ": "`pm.DEMetropolisZ`",
    "Slice": "`pm.Slice`", "smc": "`pm.sample_smc`", "NUTS": "`pm.NUTS` by differences",
}  # fmt: skip
HEAD = """\
# Hierarchical models behind black boxes

{summary}

Effective draws (bulk, worst coordinate, unconstrained, four chains) per 1000 evaluations, tuning counted;
R-hat; largest error of a mean in posterior sds; largest |log ratio| of an sd; z, the largest error of a mean or an
sd in standard errors (of some forty to four hundred: 3.5 is usual). Medians over seeds, the worst R-hat and z.
Truth is NUTS on the same model with its gradients, of the funnel quadrature, and its sds are those of v and
x exp(-v / 2). Milliseconds of processor time an evaluation, black boxes and compilation at the first draw included.
PyMC's samplers spend half of the evaluations on tuning; NUTS' gradients are forward differences of d + 1
evaluations; particles are told the prior, and the largest population is taken whose run fits into the budget.

| model | budget a chain | sampler | seeds | per 1000 | R-hat | mean error | sd error | z | ms |
|---|---:|---|---:|---:|---:|---:|---:|---:|---:|"""


def report(cells: list[dict]) -> str:
    """All of it."""
    lines, none = [HEAD.format(summary=summary(cells))], []
    for name in MODELS:
        for budget in BUDGETS:
            for sampler in SAMPLERS:
                rows = [
                    c for c in cells
                    if (c["model"], c["budget"], c["sampler"]) == (name, budget, sampler)
                ]  # fmt: skip
                good = [c for c in rows if "failed" not in c]
                none += [
                    f"{LABELS[sampler]} on {name}: {c['failed']}" for c in rows if "failed" in c
                ]
                if good:
                    lines.append(_row(name, budget, sampler, good))
    built = {c["model"]: c["built"] for c in cells if c["sampler"] == "boxes"}
    times = ", ".join(f"{name} {built[name]}" for name in MODELS if name in built)
    return "\n".join([
        *lines, "", *[f"Without result: {'; '.join(dict.fromkeys(none))}.", ""] * bool(none),
        *[missing(cells), ""] * bool(missing(cells)),
        "References: " + _references() + ".", "",
        "![Effective draws per 1000 evaluations](hierarchical.png)", "", f"{versions()}.", "",
        f"Compilation (`built`, seconds of processor time, first run): {times}.",
    ])  # fmt: skip


def _row(name, budget, sampler, rows):
    def middle(key, digits):
        values = [r[key] for r in rows if key in r]
        return f"{np.median(values):.{digits}f}" if values else ""

    z = [r["z"] for r in rows if "z" in r]
    per = np.median([r["per_1000"] for r in rows])
    figures = [
        f"{per:.0f}" if per >= 10 else f"{per:.2g}", f"{max(r['rhat'] for r in rows):.3f}",
        middle("error", 2), middle("sd_error", 2), f"{max(z):.1f}" if z else "",
        middle("milliseconds", 1),
    ]  # fmt: skip
    return f"| {name} | {budget} | {LABELS[sampler]} | {len(rows)} | " + " | ".join(figures) + " |"


def _references():
    stored = reference.load()
    found = [
        f"{name} {r['ess']:,.0f} (R-hat {r['rhat']:.3f}, {r['divergences']} divergences)"
        for name, r in ((name, stored[name]) for name in MODELS if name in stored)
    ]  # fmt: skip
    return "effective draws of NUTS: " + ", ".join(found) + "; lynx-hare by importance sampling"


# --- in words ---------------------------------------------------------------------------------------


def summary(cells: list[dict]) -> str:
    """What ``KamiltonianStep()`` reaches, what it does not, and whether R-hat ever hid it."""
    ours = [c for c in cells if c["sampler"] == "boxes"]
    parts = []
    at = {name: _median(ours, name, 3000) for name in MODELS}
    at = {name: value for name, value in at.items() if value is not None}
    if at:
        low = [f"{name} ({value:.3g})" for name, value in at.items() if value < 300]
        parts.append(
            f"`KamiltonianStep()` has at least 300 effective draws per 1000 evaluations at 3,000 a chain on "
            f"{len(at) - len(low)} of {len(at)} models{_except(low)}."
        )
    ran = [name for name in MODELS if any(c["budget"] == 1000 and c["model"] == name for c in ours)]
    bad = [
        name for name in ran
        if any(c["rhat"] >= 1.01 or c["ess"] < 400 for c in ours if c["model"] == name and c["budget"] == 1000)
    ]  # fmt: skip
    if ran:
        parts.append(
            f"With 1,000 a chain every seed has R-hat below 1.01 and 400 effective draws on {len(ran) - len(bad)} of "
            f"{len(ran)}{_except(bad)}."
        )
    wrong = sorted({f"{c['model']} at {c['budget']:,}" for c in ours if silently_wrong(c)})
    parts.append(
        f"R-hat below 1.01 and a mean or an sd more than 4.5 standard errors off: {', '.join(wrong)}."
        if wrong
        else "No run of it with R-hat below 1.01 has a mean or an sd more than 4.5 standard errors off."
    )
    return " ".join(parts)


def _except(names):
    return f" (not on {', '.join(names)})" if names else ""


def _median(cells, name, budget):
    found = [c["per_1000"] for c in cells if c["model"] == name and c["budget"] == budget]
    return float(np.median(found)) if found else None


def silently_wrong(cell: dict) -> bool:
    """Whether a mean or an sd is off by more than 4.5 standard errors though R-hat is below 1.01."""
    return cell.get("rhat", 2.0) < 1.01 and cell.get("z", 0.0) > 4.5


def missing(cells: list[dict]) -> str:
    """What ``KamiltonianStep()`` has not been run on, and where seeds are short of five."""
    found = [(c["model"], c["budget"]) for c in cells if c["sampler"] == "boxes"]
    parts = []
    for budget in BUDGETS:
        none = [name for name in MODELS if (name, budget) not in found]
        if none:
            which = "any" if len(none) == len(MODELS) else ", ".join(none)
            parts.append(f"at {budget:,} a chain on {which}")
    few = any(found.count(pair) < 5 for pair in found)
    sentences = [f"`KamiltonianStep()` was not run {'; '.join(parts)}."] * bool(parts)
    return " ".join([*sentences, *["Fewer seeds than five: for want of time."] * few])
