"""How results are written down: Markdown tables, numbers with as many digits as they have, figures."""

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"


def digits(x: float | None) -> str:
    """Two significant digits, one more from 1 to 10, whole numbers from 100 on; a dash for what is not finite."""
    if x is None or not math.isfinite(x):
        return "–"
    return f"{x:.0f}" if x >= 99.5 else f"{x:.2g}" if x >= 9.95 or x < 0.995 else f"{x:.1f}"


def middle(values, fmt: str) -> str:
    """Median and the central 80 %."""
    low, mid, high = np.quantile(values, [0.1, 0.5, 0.9])
    return f"{mid:{fmt}} ({low:{fmt}} to {high:{fmt}})"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], left: int = 1) -> str:
    """A Markdown table; all but the first ``left`` columns are aligned to the right."""
    marks = ["---" if k < left else "---:" for k in range(len(head))]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in [head, marks, *rows])


def sections(title: str, parts: Sequence[tuple[str, Callable]], *given) -> str:
    """A page of tables: of every part its title, and the table whose head and rows the function makes of ``given``."""
    return "\n\n".join([f"# {title}", *(f"## {name}\n\n{table(*make(*given))}" for name, make in parts)])


def page(name: str, names: dict[str, Any]) -> str:
    """The text of pages/NAME.txt, Markdown, with what the ``names`` in its braces stand for."""
    return (RESULTS.parent / "pages" / f"{name}.txt").read_text("utf-8").format_map(names)


def subplots(*args, **options):
    """``plt.subplots``, on no display."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(*args, **options)


def save_figure(figure, name: str, dpi: int = 90, rect=None) -> None:
    """Write results/NAME.png, the panels laid out within ``rect``, and forget the figure."""
    import matplotlib.pyplot as plt

    figure.tight_layout(rect=rect)
    for panel in figure.axes:
        panel.spines[["top", "right"]].set_visible(False)
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / f"{name}.png", dpi=dpi)
    plt.close(figure)
