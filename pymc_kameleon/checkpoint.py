"""A run's evaluations on disk, round by round, so that a run that was killed goes on where it was.

A run is a function of its seed, its options and the log densities that it was told
(:mod:`pymc_kameleon.samplers.pooled.chains`). So these are all that has to be kept: whoever resumes makes the same run
again, and where it asks for what is on disk it is told that instead of evaluating. That costs the fits and none of the
evaluations, and has the same bits by construction; nothing of the sampler's inside is stored. On another machine the
arithmetic may round differently, and the points asked for are others: then the run is refused, and its evaluations are
still there for ``pk.sample(evaluations=...)``.

Two files in a folder: ``run.json``, written once, to another name and then renamed; ``rounds.f8``, only ever appended
to, little-endian float64 in rows of (size of its round, point, log density, what black boxes returned if that is
learned from). What a kill left behind of a row or a round is cut off.
"""

import json
import os
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from pymc_kameleon.numerics.evaluations import Evaluations, empty, table, taken_apart

LogDensities = Callable[[list[np.ndarray], int], list[Any]]
HEADER, ROUNDS = "run.json", "rounds.f8"
FORMAT = 3
ELSEWHERE = (
    "Or take another folder: pk.sample(evaluations=pymc_kameleon.checkpoint.load(path)) begins a new run with the "
    "evaluations of this one."
)


class Checkpoint:
    """A folder with a run.

    Parameters
    ----------
    path : path-like
        Of the folder; made if it does not exist.
    header : dict
        What the run depends on, beside its seed: the folder of another run is refused.
    seed : int or None
        None takes that of the run in the folder, or ``fresh``.
    fresh : int
        The seed of a new run.
    dim : int
        Of the points. The header's ``outputs``, if it has them, are how many numbers come back beside a log density.
    fixed : dict, optional
        What is decided when a run begins: kept with a new run, taken from the folder of an old one. ``random_seed`` is
        what the user gave for ``seed``, for messages.

    Raises
    ------
    ValueError
        If the folder has a run with another header, with what differs, or one whose ``run.json`` is damaged.
    FileExistsError
        If it is a file.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        header: dict[str, Any],
        seed: int | None,
        fresh: int,
        dim: int,
        fixed: dict[str, Any] | None = None,
    ):
        self.path, self.dim, self.outputs = Path(path), dim, header.get("outputs", 0)
        if self.path.is_file():
            raise FileExistsError(f"checkpoint is a folder, made if there is none, and {self.path} is a file.")
        self.path.mkdir(parents=True, exist_ok=True)
        header, fixed = json.loads(json.dumps([header, fixed or {}]))
        file = self.path / HEADER
        if file.exists():
            stored = _read(file)
            self.seed, self.fixed = int(stored.pop("seed")), stored.pop("fixed", None)
            if self.fixed is None or stored.pop("format", None) != FORMAT:
                raise ValueError(f"the run in {self.path} was made by another version of pymc_kameleon. {ELSEWHERE}")
            _compare(self.path, stored, header)
            if seed is not None and seed != self.seed:
                was, now = (part.get("random_seed", s) for part, s in ((self.fixed, self.seed), (fixed, seed)))
                raise ValueError(
                    f"the run in {self.path} is another one: it was begun with random_seed={was}, and this is "
                    f"random_seed={now}. {ELSEWHERE}"
                )
        else:
            self.seed, self.fixed = fresh if seed is None else seed, fixed
            stored = {**header, "format": FORMAT, "fixed": fixed, "seed": self.seed}
            _write(file, json.dumps(stored, indent=1))
        self.rounds, end = _rounds(self.path, self.dim, self.outputs)
        with (self.path / ROUNDS).open("ab") as f:
            f.truncate(end)
        self.replayed = 0

    def check_budget(self, most: int | None, longest: int) -> None:
        """Refuse a budget below what the run was begun with or has spent: it can be made longer, not shorter.

        Parameters
        ----------
        most : int or None
            ``max_evaluations``.
        longest : int
            Evaluations that tuning may take.
        """
        made, begun = sum(map(len, self.rounds)), self.fixed.get("max_evaluations") or 0
        if most is not None and most < max(made, begun, longest):
            raise ValueError(
                f"the run in {self.path} has made {made} evaluations and was begun to make {max(begun, longest)}, more "
                f"than max_evaluations={most}. It can be made longer and not shorter: give as many or more."
            )

    def _found(self, row: np.ndarray) -> Any:
        """What came back of a point."""
        return row[self.dim + 1 :].copy() if self.outputs else float(row[-1])

    def recall(self, points: Sequence[np.ndarray]) -> list[Any] | None:
        """The log densities at ``points`` if they are the next round on disk; None after the last.

        Raises
        ------
        RuntimeError
            If the next round on disk is another.
        """
        if self.replayed == len(self.rounds):
            return None
        stored = self.rounds[self.replayed]
        if len(stored) != len(points) or stored[:, 1 : self.dim + 1].tobytes() != np.array(points).tobytes():
            raise RuntimeError(
                f"the run in {self.path} cannot be resumed here: round {self.replayed} asks for other points than it "
                "did. Versions or processors differ in their arithmetic. Its evaluations are not lost: "
                "pk.sample(evaluations=pymc_kameleon.checkpoint.load(path)) begins with them."
            )
        self.replayed += 1
        return [self._found(row) for row in stored]

    def append(self, points: Sequence[np.ndarray], values: Sequence[Any]) -> None:
        """Keep a round; when this returns it is on disk."""
        rows = [np.concatenate([[len(points)], x, np.atleast_1d(v)]) for x, v in zip(points, values, strict=True)]
        with (self.path / ROUNDS).open("ab") as f:
            f.write(np.array(rows).astype("<f8").tobytes())
            f.flush()
            os.fsync(f.fileno())

    def evaluate(self, log_densities: LogDensities, points: list[np.ndarray], first: int) -> list[Any]:
        """What is on disk, or else ``log_densities(points, first)``, which is then kept."""
        if not points:
            return []
        known = self.recall(points)
        if known is None:
            known = log_densities(points, first)
            self.append(points, known)
        return known

    def verify(self, log_densities: LogDensities) -> None:
        """Evaluate the last point on disk again, to see whether the run was made with this log density.

        Raises
        ------
        ValueError
            If it is not, with the numbers.
        """
        if not self.rounds:
            return
        number = sum(map(len, self.rounds)) - 1
        row = self.rounds[-1][-1]
        point = row[1 : self.dim + 1].copy()
        if not np.isfinite(row[self.dim + 1]):  # it may have raised, in a look
            return
        [[again]], [[stored]] = (taken_apart(f)[:1] for f in (log_densities([point], number), [self._found(row)]))
        if not abs(again - stored) <= 0.01 + 1e-6 * abs(stored):  # other machines round differently
            raise ValueError(
                f"the run in {self.path} is of another log density: at {point.tolist()} it was {stored}, and is "
                f"{again}. Take another folder."
            )


def load(path: str | PathLike[str]) -> Evaluations:
    """The evaluations in the folder of a run, to begin another with: ``pk.sample(evaluations=load("run"))``.

    Parameters
    ----------
    path : str or PathLike
        The folder that ``pk.sample(checkpoint=...)`` was given, finished or interrupted.

    Returns
    -------
    Evaluations
        Points (n, d), unconstrained, and their log densities (n,), in the order in which they were evaluated. Of a run
        that learned black boxes one by one the points are in its non-centred coordinates, for another such run.

    Raises
    ------
    FileNotFoundError
        If there is no run in the folder.
    ValueError
        If ``run.json`` is damaged.
    """
    file = Path(path) / HEADER
    if not file.exists():
        raise FileNotFoundError(f"there is no run in {path}: no file {HEADER}.")
    header = _read(file)  # whatever made it: nothing is compared
    dim, outputs = int(header["dim"]), int(header.get("outputs", 0))
    rounds, _ = _rounds(file.parent, dim, outputs)
    if not rounds:
        return empty(dim, outputs)
    number = np.repeat(np.arange(len(rounds)), [len(r) for r in rounds])
    x, y, found = np.split(np.concatenate(rounds)[:, 1:], [dim, dim + 1], axis=1)
    return table(x, y[:, 0], round=number, outputs=found)


def _read(file: Path) -> dict[str, Any]:
    try:
        header = json.loads(file.read_text())
        if not isinstance(header, dict) or not {"dim", "seed"} <= header.keys():
            raise ValueError("it has no dim and seed")
        return header
    except ValueError as error:
        raise ValueError(
            f"{file} is damaged ({error}). The evaluations are in {ROUNDS} beside it: keep a copy of that, delete "
            f"{HEADER}, and make the call that began the run, with the same random_seed. It writes {HEADER} anew."
        ) from error


def _rounds(path: Path, dim: int, outputs: int) -> tuple[list[np.ndarray], int]:
    """Complete rounds, arrays of shape (points, 1 + d + 1 + outputs), and at which byte of the file they end."""
    file, width = path / ROUNDS, dim + 2 + outputs
    data = file.read_bytes() if file.exists() else b""
    rows = np.frombuffer(data[: len(data) // (8 * width) * 8 * width], "<f8").reshape(-1, width)
    rounds, row = [], 0
    while row < len(rows) and 1 <= rows[row, 0] <= len(rows) - row:
        size = int(rows[row, 0])
        rounds.append(rows[row : row + size])
        row += size
    return rounds, 8 * width * row


def _compare(path: Path, stored: dict[str, Any], header: dict[str, Any]) -> None:
    was, now = _flat(stored), _flat(header)
    differ = [n for n in dict.fromkeys([*was, *now]) if was.get(n) != now.get(n)]
    if differ:
        said = "; ".join(f"{n} was {_text(was, n)}, is {_text(now, n)}" for n in differ)
        raise ValueError(f"the run in {path} is another one: {said}. Resume with what it was begun with. {ELSEWHERE}")


def _flat(header: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The options within the options by names of their own."""
    flat: dict[str, Any] = {}
    for name, value in header.items():
        flat |= _flat(value, f"{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def _text(flat: dict[str, Any], name: str) -> str:
    return json.dumps(flat[name]) if name in flat else "not there"


def _write(file: Path, text: str) -> None:
    """All of it or nothing."""
    temporary = file.with_suffix(f".{os.getpid()}.tmp")
    with temporary.open("w") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    temporary.replace(file)
