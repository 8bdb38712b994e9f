"""What ``pm.sample``'s progress bar says of a step: acceptance and phase, evaluations, and its surrogate or its scale.

PyMC hands the bar a draw's statistics and nothing else, in chains that take turns or sit in processes of their own.
What the bar shows beyond statistics therefore travels with them, as an attribute of the dictionary.

PyMC 6's own columns leave eight characters of a terminal of 80, if its times are to be legible: all stands in one
column, line below line. It has no ``ratio``, so that PyMC's share what is left.
"""

import math
from collections import deque
from typing import Any, NamedTuple

from rich.progress import ProgressColumn, TextColumn
from rich.table import Column

CLIMBING, TUNING, DRAWING = "climbing", "tuning", "drawing"
WINDOW = 100  # draws, of the mean of the acceptance probability
WIDTH = 8  # of the column, in characters
SURROGATE, SCALE = "Fit off", "Scale"  # what stands below acceptance and evaluations
# moves that are evaluated to learn, and cannot be accepted
NO_PROPOSALS = ("arrival", "design", "elsewhere", "refresh", "renewal")


class Told(NamedTuple):
    """How far a chain is."""

    phase: str  # CLIMBING, TUNING or DRAWING
    acceptance: float  # mean probability over the last draws
    evaluations: int


class Row(dict[str, Any]):
    """A draw's statistics, and what the bar shows besides."""

    told: Told | None = None


class Window(deque[float]):
    """The last ``WINDOW`` acceptance probabilities. For the eye alone: no draw depends on it, nor is it ever stored."""

    total = 0.0

    def told(self, life: Any, draw: Any, evaluations: int) -> Told:
        """What the bar shows of a draw: acceptance over the last draws that proposed."""
        if draw.proposal.move not in NO_PROPOSALS:
            self.total += draw.accept_prob - (self[0] if len(self) == self.maxlen else 0.0)
            self.append(draw.accept_prob)
        phase = DRAWING if not life.state.tune else CLIMBING if life.climbing else TUNING
        return Told(phase, self.total / (len(self) or 1), evaluations)


def columns(third: str, n_chains: int) -> tuple[list[ProgressColumn], dict[str, list[str]]]:
    """The bar's column, and its first value for every chain; ``third`` stands below acceptance and evaluations."""
    field, header = _field(third), Column(f"Accept\nEvals\n{third}", width=WIDTH)
    return [TextColumn("{task.fields[" + field + "]}", markup=False, table_column=header)], {field: [""] * n_chains}


def _field(third: str) -> str:
    return f"kameleon_{third.lower().replace(' ', '_')}"


def fields(third: str, row: dict[str, Any]) -> dict[str, str]:
    """What :func:`columns` shows, of a draw's statistics."""
    told = getattr(row, "told", None) or Told("", row["accept"], 0)
    last = _surrogate(row) if third == SURROGATE else f"{row['scaling']:.2g}"
    return {_field(third): f"{_acceptance(told)}\n{told.evaluations}\n{last}"}


def _acceptance(told: Told) -> str:
    """Three characters for the share, and four letters of the phase."""
    if told.phase == CLIMBING:  # to the typical set: nothing is accepted or rejected yet
        return told.phase
    share = f"{told.acceptance:.2f}"
    share = "1.0" if share == "1.00" else share.removeprefix("0")
    return f"{share} {told.phase[:4]}"


def _surrogate(row: dict[str, Any]) -> str:
    """Whether there is one, and how far it is off on points that it has not seen, in nats."""
    error = row.get("surrogate_error", math.nan)
    if not 0.0 <= error < math.inf:  # there is none, or it was fitted to positions, and has nothing to be off from
        return "by score" if row.get("n_history", 0) > 0 else "none yet"
    if error < 0.01:
        return "<.01 nat"
    return f"{error:.2f} nat" if error < 10.0 else f"{min(error, 9999.0):.0f} nat"
