"""Effective draws per 1000 evaluations, a point a seed; hollow where R-hat is 1.01 or more."""

from pathlib import Path

import matplotlib.pyplot as plt

from benchmarks.hierarchical.models import MODELS

STYLES = {
    ("boxes", 1000): ("tab:blue", "o", "KamiltonianStep()"),
    ("boxes", 3000): ("tab:blue", "s", "KamiltonianStep()"),
    ("whole", 3000): ("tab:orange", "D", 'learn="all"'),
    ("DEMetropolisZ", 3000): ("tab:gray", "v", "pm.DEMetropolisZ"),
    ("Slice", 3000): ("tab:gray", "P", "pm.Slice"),
    ("smc", 3000): ("tab:green", "*", "pm.sample_smc"),
    ("NUTS", 3000): ("tab:red", "X", "pm.NUTS by differences"),
}


def draw(cells: list[dict], path: Path) -> None:
    """Write the figure."""
    names = [name for name in MODELS if any(c["model"] == name for c in cells)]
    figure, axis = plt.subplots(figsize=(8, 0.42 * len(names) + 1.8), layout="constrained")
    for (sampler, budget), (colour, marker, label) in STYLES.items():
        mine = [
            c for c in cells
            if (c["sampler"], c["budget"]) == (sampler, budget) and "failed" not in c
        ]  # fmt: skip
        if not mine:
            continue
        axis.plot([], [], marker, color=colour, label=f"{label}, {budget:,} a chain")
        for c in mine:
            shift = -0.16 if budget == 1000 else 0.16
            axis.plot(
                c["per_1000"], names.index(c["model"]) + shift, marker, color=colour, ms=6,
                mfc=colour if c["rhat"] < 1.01 else "white",
            )  # fmt: skip
    axis.set_xscale("log")
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.grid(axis="x", color="0.9")
    axis.set_xlabel(
        "effective draws per 1000 evaluations, tuning counted (hollow: R-hat 1.01 or more)"
    )
    axis.legend(
        frameon=False, fontsize="small", loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=3
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)
