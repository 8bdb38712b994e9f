"""Which code made a result, and whether that is still the code.

The last line of every ``results/NAME.md`` has a digest of each module that the result depends on: the benchmark and,
followed through its imports, whatever it uses of this package. A digest is of the parsed source, so that comments,
docstrings and formatting do not count. ``tests/test_provenance.py`` compares.

    python -m benchmarks.provenance           # what is stale, since which changes, how to make it anew, and the minutes
    python -m benchmarks.provenance --mark    # write into the stale ones that they are

A result is fresh when it is made anew; until then the sentence that ``--mark`` writes under its title says that its
figures may differ.
"""

import argparse
import ast
import hashlib
import re
import subprocess
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDER = Path(__file__).parent / "results"
OURS = ("benchmarks", "pymc_kameleon")
SAMPLERS = (
    "samplers.adaptive_metropolis", "samplers.kameleon.full", "samplers.kameleon.fast",
    "samplers.gaussian_mixture.sampler", "samplers.kamiltonian.values.sampler",
)  # fmt: skip


class Result(NamedTuple):
    """How a result is made.

    ``command`` follows ``python -m benchmarks.``; ``minutes`` are of processor time, about. ``roots``: the modules
    that its figures depend on, with all that they import; by default the benchmark's own. Where cells are stored,
    every cell has a digest of its own (:func:`digest`), and the benchmark, which is mostly tables, is not among the
    roots: after a change of how it measures, give it ``--again``.
    """

    command: str
    minutes: int
    roots: tuple[str, ...] = ()
    needs: str = ""

    @property
    def modules(self) -> tuple[str, ...]:
        """The roots, whether named or not."""
        return self.roots or (f"benchmarks.{self.command.split()[0]}",)


def _package(*names: str) -> tuple[str, ...]:
    return tuple(f"pymc_kameleon.{name}" for name in names)


RESULTS = {
    "adaptation_bias": Result("adaptation_bias", 2),
    "arrival": Result("arrival", 30),
    "calibration": Result(
        "calibration", 180, (*_package(*SAMPLERS, "steps.base"), "benchmarks.calibration.models")
    ),
    "cold_start": Result(
        "cold_start", 240, (*_package(*SAMPLERS, "targets", "diagnostics"), "benchmarks.core")
    ),
    "cold_start_ablation": Result(
        "cold_start --ablation", 30, (*_package("samplers.kameleon.full", "targets", "diagnostics"), "benchmarks.core")
    ),
    "control_variates": Result(
        "control_variates", 30,
        (*_package("samplers.modes.chains", "control_variates", "targets"),),
    ),
    "curved": Result(
        "curved", 60,
        (*_package(*SAMPLERS, "samplers.screened", "steps.base", "steps.log_density"), "benchmarks.textbook.drive"),
    ),
    "fast_kameleon": Result("fast_kameleon", 10),
    "feature_convergence": Result("feature_convergence", 1),
    "few_evaluations": Result(
        "few_evaluations", 120,
        (*_package("samplers.modes.chains", "samplers.kamiltonian.values.sampler", "targets"), "benchmarks.arriving"),
    ),
    "glass": Result("glass", 9),
    "corrections": Result("corrections", 1),
    "history_length": Result("history_length", 1),
    "gp_estimator": Result("gp_estimator", 2),
    "hamiltonian_abc": Result("hamiltonian_abc", 5),
    "hierarchical": Result(
        "hierarchical", 120,
        _package("steps.structure", "samplers.kamiltonian.factors.sampler"),
    ),
    "kamiltonian_banana": Result("kamiltonian_paper --only banana", 5),
    "kamiltonian_cold_start": Result("kamiltonian_cold_start", 10),
    "kamiltonian_dimension": Result(
        "kamiltonian_dimension", 20,
        (*_package(SAMPLERS[0], SAMPLERS[-1], "targets", "diagnostics"), "benchmarks.core"),
    ),
    "kamiltonian_trajectories": Result("kamiltonian_paper --only trajectories", 5),
    "long_runs": Result("long_runs", 15, _package("steps.methods", "steps.base")),
    "noisy_likelihood": Result("noisy_likelihood", 3),
    "nuts_per_gradient": Result("nuts_per_gradient", 20, _package("targets", "diagnostics")),
    "paper_convergence": Result("papers.convergence", 2),
    "paper_features": Result(
        "papers.features", 12,
        (*_package("samplers.kameleon.fast", "samplers.kameleon.full", "targets", "diagnostics"), "benchmarks.core"),
    ),
    "paper_glass_curves": Result(
        "papers.glass_curves", 10,
        (*_package("gp.estimator", "samplers.kameleon.full", "samplers.kamiltonian.scores.sampler",
                   "samplers.kamiltonian.values.sampler"), "benchmarks.core"),
    ),
    "paper_kameleon_targets": Result(
        "papers.kameleon_targets", 20,
        (*_package("samplers.schedule", "samplers.kameleon.full", "targets", "diagnostics"), "benchmarks.core"),
    ),
    "paper_pictures": Result("papers.pictures", 3),
    "paper_trajectories": Result("papers.trajectories", 2),
    "paper_twisted": Result("papers.twisted", 3),
    "parametrization": Result(
        "parametrization", 60,
        _package("steps.centring", "samplers.adaptive_metropolis", "samplers.kameleon.fast", "samplers.kameleon.full",
                 "samplers.gaussian_mixture.sampler"),
    ),
    "particle_filter": Result("particle_filter", 1),
    "peers": Result(
        "peers", 120, (*_package(*SAMPLERS, "samplers.pooled.chains", "samplers.kamiltonian.factors.sampler"),)
    ),
    "modes": Result("modes", 60, _package("samplers.modes.chains", "samplers.kamiltonian.values.sampler")),
    "pools": Result("pools", 5, _package("samplers.pooled.pools", "samplers.kamiltonian.values.sampler", "sampling")),
    "short_tuning": Result(
        "short_tuning", 60, (*_package(*SAMPLERS, "samplers.cma", "samplers.gaussian_adaptation"), "benchmarks.core")
    ),
    "step_cost_pymc5": Result("step_cost", 1, needs="PyMC 5"),
    "step_cost_pymc6": Result("step_cost", 1, needs="PyMC 6"),
    "textbook": Result(
        "textbook", 60, (*_package(*SAMPLERS, "steps.base", "steps.log_density"), "benchmarks.textbook.drive")
    ),
    "textbook_ablation": Result(
        "textbook --seeds 1 --out textbook_ablation --steps KamiltonianStep KamiltonianStep:arrival=False "
        "KamiltonianStep:companion_share=0.0",
        40, (*_package(*SAMPLERS, "steps.base", "steps.log_density"), "benchmarks.textbook.drive"),
    ),
    "textbook_before": Result(  # of the code before the arrival phase, to compare with: stale on purpose
        "textbook", 60, (*_package(*SAMPLERS, "steps.base", "steps.log_density"), "benchmarks.textbook.drive")
    ),
    "tuned_work": Result(
        "tuned_work", 25,
        (*_package("samplers.tuned_work", "samplers.kameleon.fast", "samplers.kamiltonian.values.sampler", "steps.base",
                   "particle_filter"),),
    ),
    "twisted_gaussians": Result("twisted_gaussians", 4),
}  # fmt: skip


# --- digests ---------------------------------------------------------------------------------------


def normalised(node) -> str:
    """A parsed source as text that is the same for the same program, on every Python: no docstrings, no positions."""
    if isinstance(node, list):
        return f"[{','.join(map(normalised, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(
        node, ast.JoinedStr
    ):  # how an f-string's constant parts are cut differs between versions
        parts = [
            "".join(p.value for p in run) if isinstance(run, list) else run
            for run in _runs(node.values)
        ]
        return f"JoinedStr({','.join(map(normalised, parts))})"
    fields = dict(ast.iter_fields(node))
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        fields["body"] = _without_docstring(node.body)
    for name in ("ctx", "kind", "type_comment", "type_ignores", "type_params"):
        fields.pop(name, None)
    inner = ",".join(f"{k}={normalised(v)}" for k, v in fields.items() if v is not None and v != [])
    return f"{type(node).__name__}({inner})"


def _runs(values):
    """Neighbouring constants together."""
    found: list = []
    for value in values:
        if not isinstance(value, ast.Constant):
            found.append(value)
        elif found and isinstance(found[-1], list):
            found[-1].append(value)
        else:
            found.append([value])
    return found


def _without_docstring(body):
    first = body[0] if body else None
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        return body[1:]
    return body


def read(path: str) -> str | None:
    """Source of a file of the checkout, None if there is none; ``path`` from the checkout's root."""
    file = ROOT / path
    return file.read_text("utf-8") if file.is_file() else None


def _source(module: str, reader: Callable[[str], str | None]) -> str | None:
    path = module.replace(".", "/")
    found = reader(f"{path}.py")
    return reader(f"{path}/__init__.py") if found is None else found


def imported(module: str, tree: ast.Module, reader: Callable[[str], str | None] = read) -> set[str]:
    """Modules of this project that a parsed source imports.

    In the package at its top: what a function of it imports is a model's other half, for whoever asks for that.
    """
    found = set()
    for node in tree.body if module.startswith("pymc_kameleon") else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:  # a module of a package, or a name in a module
                module = f"{node.module}.{alias.name}"
                ours = node.module.split(".")[0] in OURS
                found.add(module if ours and _source(module, reader) is not None else node.module)
    return {name for name in found if name.split(".")[0] in OURS}


@cache
def _read_module(module: str, reader: Callable[[str], str | None]) -> tuple[str, frozenset[str]]:
    """A module's own digest, and what it imports."""
    source = _source(module, reader)
    if source is None:
        raise ValueError(f"there is no module {module}: correct what names it in {__name__}")
    tree = ast.parse(source)
    own = hashlib.sha256(normalised(tree).encode()).hexdigest()[:8]
    return own, frozenset(imported(module, tree, reader))


def digests(modules: Iterable[str], reader: Callable[[str], str | None] = read) -> dict[str, str]:
    """Digest of every module among ``modules`` and of what they import of this project, sorted by name."""
    found: dict[str, str] = {}
    todo = list(modules)
    while todo:
        module = todo.pop()
        if module not in found and module != "benchmarks.provenance":
            found[module], more = _read_module(module, reader)
            todo += more
    return dict(sorted(found.items()))


def digest(*modules: str) -> str:
    """One digest of ``modules`` and all that they import of this project, for a stored cell."""
    return hashlib.sha256(repr(digests(modules)).encode()).hexdigest()[:8]


def own_digest(*modules: str) -> str:
    """One digest of ``modules`` alone, without what they import."""
    own = [_read_module(module, read)[0] for module in modules]
    return hashlib.sha256(repr(own).encode()).hexdigest()[:8]


# --- in the results --------------------------------------------------------------------------------

MARK = "**Stale**: made at commit {commit}, before changes of the code that it runs: figures may differ."
_STAMP = re.compile(r"^Made at commit (\S+)( with changes)? by `(.+)`\. <!-- (.*) -->$")


def commit() -> str:
    """The checkout's, and whether it has changes."""

    def git(*arguments):
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    changes = (
        " with changes" if git("status", "--porcelain", "--", *OURS, ":!benchmarks/results") else ""
    )
    return (git("rev-parse", "--short", "HEAD") or "unknown") + changes


def stamp(name: str, at: str | None = None, found: dict[str, str] | None = None) -> str:
    """The last line of the result ``name``."""
    if name not in RESULTS:
        raise ValueError(f"there is no result {name!r} in {__name__}.RESULTS: add how it is made")
    found = digests(RESULTS[name].modules) if found is None else found
    listed = " ".join(f"{module}={value}" for module, value in found.items())
    return f"Made at commit {at or commit()} by `python -m benchmarks.{RESULTS[name].command}`. <!-- {listed} -->"


def stale_cells(codes: Iterable[tuple[str, str | None, str]]) -> str:
    """In words, which cells are not of the present code; ``codes``: label, stored digest, present digest of each."""
    codes = list(codes)
    stale = [label for label, stored, present in codes if stored != present]
    labels = ", ".join(dict.fromkeys(stale))
    return f"{len(stale)} of {len(codes)} cells ({labels}) were" if stale else ""


def write(path: Path, text: str, name: str | None = None, stale_cells: str = "") -> None:
    """Write a result with its stamp; ``stale_cells`` says which of its stored cells are of another code."""
    text = f"{text.rstrip()}\n\n{stamp(name or path.stem)}\n"
    if stale_cells:
        text = marked(
            text,
            f"**Stale**: {stale_cells} made before changes of the code that they run: figures may differ.",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def marked(text: str, sentence: str) -> str:
    """A result with a sentence under its title."""
    title, rest = text.split("\n", 1)
    return f"{title}\n\n{sentence}\n\n{rest.lstrip()}"


def made() -> list[str]:
    """The results that are there."""
    return [name for name in RESULTS if (FOLDER / f"{name}.md").exists()]


class Status(NamedTuple):
    """Of a result: the commit, the modules that changed since, and whether it says so itself."""

    commit: str
    changed: tuple[str, ...]
    says_so: bool


def status(name: str, text: str | None = None) -> Status:
    """Compare the digests in a result with those of the present code."""
    text = (FOLDER / f"{name}.md").read_text("utf-8") if text is None else text
    match = _STAMP.match(text.rstrip().rsplit("\n", 1)[-1])
    if match is None:
        raise ValueError(
            f"results/{name}.md has no stamp: let its benchmark write it with provenance.write"
        )
    then = dict(pair.split("=") for pair in match[4].split())
    now = digests(RESULTS[name].modules)
    changed = sorted(m for m in then.keys() | now.keys() if then.get(m) != now.get(m))
    return Status(match[1], tuple(changed), "\n**Stale**: " in text)


def describe(name: str, found: Status) -> str:
    """A stale result in three lines."""
    result = RESULTS[name]
    since = (
        ", ".join(m.removeprefix("pymc_kameleon.") for m in found.changed)
        or "(cells, see the file)"
    )
    needs = f" with {result.needs}" if result.needs else ""
    return (
        f"{name}.md, of commit {found.commit}{', which says so' if found.says_so else ', UNMARKED'}\n"
        f"    python -m benchmarks.{result.command}    (about {result.minutes} minutes{needs})\n"
        f"    changed since: {since}"
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--mark", action="store_true", help="say in the stale results that they are"
    )
    options = parser.parse_args(arguments)
    minutes, stale = 0, 0
    for name in made():
        found, path = status(name), FOLDER / f"{name}.md"
        if not found.changed and not found.says_so:
            continue
        stale, minutes = stale + 1, minutes + RESULTS[name].minutes
        if options.mark and not found.says_so:
            path.write_text(
                marked(path.read_text("utf-8"), MARK.format(commit=found.commit)), "utf-8"
            )
            found = found._replace(says_so=True)
        print(describe(name, found))
    print(f"{stale} of {len(made())} results are stale; about {minutes} minutes to make them anew")


if __name__ == "__main__":
    main()
