"""``results/peers.png``: effective draws per 1000 evaluations by sampler and target, as numbers on shades of grey."""

import math
from pathlib import Path

import numpy as np

from benchmarks import report
from benchmarks.cold_start import SPAN
from benchmarks.peers.board import CONVERGED, Board
from benchmarks.peers.samplers import OURS, SAMPLERS
from benchmarks.report import digits

PATH = Path(__file__).parents[1] / "results" / "peers.png"
LOW, HIGH = 0.3, 1000.0  # of the shades


def draw(board: Board) -> None:
    """White: not converged. Grey to black: converged, the more effective draws the darker."""
    names, targets = board.samplers, board.targets
    figure, panel = report.subplots(figsize=(0.82 * len(targets) + 3.4, 0.46 * len(names) + 2.4))
    for row, s in enumerate(names):
        for column, t in enumerate(targets):
            _cell(panel, column, row, board, s, t)
    panel.set_xlim(-0.5, len(targets) - 0.5)
    panel.set_ylim(len(names) - 0.5, -0.5)
    heads = [f"{t} §" if t in SPAN else t for t in targets]
    panel.set_xticks(range(len(targets)), heads, rotation=40, ha="left", fontsize=14)
    panel.set_yticks(range(len(names)), [SAMPLERS[s].label for s in names], fontsize=14)
    for tick, s in zip(panel.get_yticklabels(), names, strict=True):
        tick.set_fontweight("bold" if s in OURS else "normal")
    panel.xaxis.tick_top()
    panel.tick_params(length=0)
    ours = sum(s in OURS for s in names)
    panel.axhline(ours - 0.5, color="black", lw=2.0)
    twelve = sum(
        t not in ("SEIR", "PK, 6 patients", "orbit", "Ricker", "volatility", "GP classifier")
        for t in targets
    )
    panel.axvline(twelve - 0.5, color="black", lw=2.0)
    panel.spines[:].set_visible(False)
    words = (
        f"Effective draws per 1000 evaluations, {board.budget:,} a run. Shaded: converged. White, in parentheses: "
        f"not converged (R-hat ≥ {CONVERGED}, or one run).\n✗: could not be run. Blank: not run yet. "
        "~: an approximation, no draws. "
        "§: in the span of KamiltonianStep's surrogates. Bold: ours."
    )
    figure.text(0.01, 0.012, words, fontsize=13, va="bottom")
    figure.tight_layout(rect=(0, 0.075, 1, 1))
    report.save_figure(figure, PATH, 100)


def _cell(panel, x, y, board, sampler, target):
    from matplotlib.patches import Rectangle

    converged, value = board.converged(sampler, target), board.ess(sampler, target)
    shade, words, size, colour = "white", "", 15, "black"
    if (sampler, target) in board.failed:
        words, colour = "✗", "0.45"
    elif (sampler, target) in board.cells and math.isnan(value):
        words = "~"
    elif converged:
        depth = np.clip(np.log(max(value, LOW) / LOW) / np.log(HIGH / LOW), 0.0, 1.0)
        shade, words = str(0.88 - 0.83 * depth), digits(value)
        colour = "black" if depth < 0.45 else "white"
    elif (sampler, target) in board.cells:
        words, size, colour = f"({digits(value)})", 11, "0.35"
    panel.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=shade, edgecolor="0.75", lw=0.6))
    panel.text(x, y, words, ha="center", va="center", fontsize=size, color=colour)
