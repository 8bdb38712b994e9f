"""What has been run: one line a cell in results/textbook.json, by what was run and with which code."""

import ast
import importlib.metadata
import zlib
from functools import cache
from inspect import ismodule
from pathlib import Path
from typing import NamedTuple

import pymc_kameleon
from benchmarks import basics, report
from benchmarks.textbook.drive import step_class
from benchmarks.textbook.posterior import model_digest

STORE = Path(__file__).parents[1] / "results" / "textbook.json"
PACKAGE = Path(pymc_kameleon.__file__).parent


class Cell(NamedTuple):
    """``code``: digest of the step's source and the model's."""

    model: str
    step: str
    seed: int
    evaluations: int
    code: str

    @property
    def key(self) -> str:
        """Its key in the file."""
        return " | ".join(map(str, self))


def cell(model: str, step: str, seed: int, evaluations: int) -> Cell:
    """With the digest of the present code."""
    return Cell(model, step, seed, evaluations, f"{source(step)}-{model_digest(model)}")


@cache
def source(step: str) -> str:
    """Digest of a step's algorithm, of all that it uses of this package, and of the steps' base; or PyMC's version."""
    found = step_class(step)
    if step.startswith("pm."):
        return f"pymc-{importlib.metadata.version('pymc')}"
    roots = {found.__module__, *_algorithms_of(found)}
    return digest(roots, _algorithms() - _algorithms_of(found))


def digest(roots: set[str], without: set[str] = frozenset()) -> str:
    """Of these modules and of all that they use of this package."""
    seen, todo = set(), list(roots)
    while todo:
        name = todo.pop()
        if name not in seen and name not in without:
            seen.add(name)
            todo += _imports(name)
    return f"{zlib.crc32(b''.join(_path(n).read_bytes() for n in sorted(seen))):08x}"


def _algorithms_of(step):
    """The modules that define what a step makes its samplers of."""
    return {v.__name__ if ismodule(v) else v.__module__ for v in step.variants.values()}


def _algorithms():
    """Modules that some step is about; a step's digest does not depend on those of other steps."""
    steps = [v for k, v in vars(pymc_kameleon).items() if k.endswith("Step")]
    return set().union(*map(_algorithms_of, steps))


def _path(module):
    path = PACKAGE.parent.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def _imports(module):
    """Modules of this package that a module imports."""
    found = []
    for node in ast.walk(ast.parse(_path(module).read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [f for f in found if f.startswith("pymc_kameleon.") and _path(f).exists()]


def load() -> dict[str, dict]:
    return report.load_cells(STORE)


def save(cell: Cell, found: dict) -> None:
    """Add a cell to what is in the file by now; several processes may."""
    report.save_cells(STORE, {cell.key: _rounded(found)}, basics.versions())


def _rounded(value):
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value
