"""How results are written down: Markdown tables, numbers with as many digits as they have, figures, stores of cells."""

import fcntl
import json
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def digits(x: float) -> str:
    """Two significant digits, one more from 1 to 10, whole numbers from 100 on; a dash for what is not finite."""
    if not math.isfinite(x):
        return "–"
    return f"{x:.0f}" if x >= 99.5 else f"{x:.2g}" if x >= 9.95 or x < 0.995 else f"{x:.1f}"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], left: int = 1) -> str:
    """A Markdown table; all but the first ``left`` columns are aligned to the right."""
    marks = ["---" if k < left else "---:" for k in range(len(head))]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in [head, marks, *rows])


def subplots(*args, **options):
    """``plt.subplots``, on no display."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(*args, **options)


def save_figure(figure, path: Path, dpi: int = 120) -> None:
    """Write a figure and forget it."""
    import matplotlib.pyplot as plt

    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=dpi)
    plt.close(figure)


def rounded(value: Any) -> Any:
    """Floats with four significant digits, through dictionaries and lists."""
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(v) for v in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def load_cells(path: Path) -> dict[str, dict]:
    """The cells of a store, by key."""
    return json.loads(path.read_text())["cells"] if path.exists() else {}


def save_cells(path: Path, found: dict[str, dict], versions: str) -> None:
    """Add cells to what is in the store by now, one a line; several processes may."""
    path.parent.mkdir(exist_ok=True)
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cells = load_cells(path) | found
        lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(cells.items()))
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(f'{{"versions": "{versions}", "cells": {{\n{lines}\n}}}}\n')
        temporary.replace(path)
