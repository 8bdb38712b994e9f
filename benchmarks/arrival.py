"""How many evaluations it takes to reach the typical set: log density within d / 2 + 3 of the mode's.

Rotated normal targets, over start distances of 1 to 1e6 posterior sds, condition numbers of the covariance of 1 to 1e8
and 2 to 40 dimensions; and the textbook models from where ``pm.sample`` starts, where the mode is the highest log
density that long runs saw. Methods: the arrival phase of this package, told nothing but the start; ``KamiltonianStep``
as users get it, which takes scales from the model's priors; SciPy's COBYQA (radius .3) and Powell, a plain CMA-ES
(sigma .3), and two steps' algorithms with no arrival phase before them. Each gets 3,000 evaluations; "converged" is a
method that stopped by itself below the level.

    python -m benchmarks.arrival [--methods ...] [--models ...] [--dimensions 2 5] [--seeds 2] [--again] [--table]

Stored one line a cell in results/arrival.json; makes results/arrival.md and .png. Half an hour for all but
"Kamiltonian, walk only" in 40 dimensions, which takes hours.
"""

import argparse
import importlib
import math
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
from scipy import optimize

from benchmarks import basics, core, provenance, report
from benchmarks.textbook import MODELS, drive, store
from benchmarks.textbook.posterior import key, model_digest, posterior, reference, references
from benchmarks.textbook.tables import digits, table
from pymc_kameleon.samplers.arrival import phase as arrival

RESULTS = Path(__file__).parent / "results"
STORE = RESULTS / "arrival.json"
BUDGET = 3000
RADIUS = 0.3  # COBYQA's first trust region and CMA's first sigma
DISTANCES = (1.0, 1e1, 1e3, 1e6)
CONDITIONS = (1.0, 1e2, 1e4, 1e8)
DIMENSIONS = (2, 5, 12, 40)
MODEL_STARTS = 4

# --- targets -------------------------------------------------------------------------------------


def normal(dim: int, condition: float, distance: float, seed: int):
    """A rotated normal with sds spread evenly in logarithm, geometric mean 1: (log density less the mode's, start)."""
    rng = np.random.default_rng([20_251_122, dim, seed])
    rotation = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    sd = np.exp(np.linspace(-0.25, 0.25, dim) * math.log(condition))
    mean, direction = rng.standard_normal(dim), rng.standard_normal(dim)

    def log_density(x):
        z = rotation.T @ (x - mean) / sd
        return -0.5 * float(z @ z)

    return log_density, mean + distance * (rotation @ (sd * direction))


# --- counting ------------------------------------------------------------------------------------


class _StopError(Exception):
    pass


class Race:
    """A log density that stops the method when it has arrived, or when the budget is spent."""

    def __init__(self, log_density: Callable[[np.ndarray], float], level: float, budget: int):
        self.log_density, self.level, self.budget = log_density, level, budget
        self.evaluations, self.best = 0, -np.inf
        self.arrived: int | None = None
        self.stops = True  # a method that is to say by itself that it has arrived goes on

    def __call__(self, x: np.ndarray) -> float:
        """The value at ``x``; NaN where it is not a number."""
        if self.evaluations >= self.budget:
            raise _StopError
        self.evaluations += 1
        value = float(self.log_density(np.ascontiguousarray(x, dtype=float)))
        self.best = max(self.best, value) if value == value else self.best
        if value >= self.level and self.arrived is None:
            self.arrived = self.evaluations
            if self.stops:
                raise _StopError
        return value

    def negative(self, x: np.ndarray) -> float:
        """For minimisers: finite always."""
        value = self(x)
        return -value if math.isfinite(value) else 1e25


# --- methods: (race, start, rng) until they stop or are stopped ----------------------------------


def cobyqa(race: Race, x: np.ndarray, rng: np.random.Generator) -> None:
    """Ragonneau & Zhang (2024), as SciPy has it."""
    optimize.minimize(
        race.negative, x, method="COBYQA",
        options={"initial_tr_radius": RADIUS, "final_tr_radius": 1e-10, "maxfev": race.budget, "maxiter": race.budget},
    )  # fmt: skip


def powell(race: Race, x: np.ndarray, rng: np.random.Generator) -> None:
    """Line searches along directions that are learned (Powell, 1964), as SciPy has it."""
    optimize.minimize(
        race.negative, x, method="Powell",
        options={"maxfev": race.budget, "maxiter": race.budget, "xtol": 1e-8, "ftol": 1e-10},
    )  # fmt: skip


def cma(race: Race, x: np.ndarray, rng: np.random.Generator) -> None:
    """The (mu/mu_w, lambda)-CMA-ES of Hansen's tutorial (2016, arXiv:1604.00772), its default parameters."""
    d = len(x)
    offspring = 4 + int(3 * math.log(d))
    parents = offspring // 2
    weights = math.log((offspring + 1) / 2) - np.log(np.arange(1, parents + 1))
    weights /= weights.sum()
    mass = 1.0 / np.sum(weights**2)
    rate_path = (4 + mass / d) / (d + 4 + 2 * mass / d)
    rate_sigma = (mass + 2) / (d + mass + 5)
    rate_one = 2 / ((d + 1.3) ** 2 + mass)
    rate_mu = min(1 - rate_one, 2 * (mass - 2 + 1 / mass) / ((d + 2) ** 2 + mass))
    damping = 1 + 2 * max(0.0, math.sqrt((mass - 1) / (d + 1)) - 1) + rate_sigma
    length = math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d * d))  # E|N(0, I)|
    mean, sigma, covariance = np.array(x), RADIUS, np.eye(d)
    path, path_sigma, generation = np.zeros(d), np.zeros(d), 0
    while True:
        generation += 1
        eigenvalues, basis = np.linalg.eigh(covariance)
        scale = np.sqrt(np.maximum(eigenvalues, 1e-300))
        steps = (rng.standard_normal((offspring, d)) * scale) @ basis.T
        values = [race.negative(mean + sigma * step) for step in steps]
        best = steps[np.argsort(values)[:parents]]
        move = weights @ best
        mean = mean + sigma * move
        whitened = basis @ (basis.T @ move / scale)
        path_sigma = (1 - rate_sigma) * path_sigma + math.sqrt(
            rate_sigma * (2 - rate_sigma) * mass
        ) * whitened
        norm = np.linalg.norm(path_sigma)
        fading = math.sqrt(1 - (1 - rate_sigma) ** (2 * generation))
        slow = float(norm / fading < (1.4 + 2 / (d + 1)) * length)
        path = (1 - rate_path) * path + slow * math.sqrt(rate_path * (2 - rate_path) * mass) * move
        kept = 1 - rate_one - rate_mu + (1 - slow) * rate_one * rate_path * (2 - rate_path)
        covariance = (
            kept * covariance
            + rate_one * np.outer(path, path)
            + rate_mu * (best.T * weights) @ best
        )
        sigma *= math.exp(min(1.0, rate_sigma / damping * (norm / length - 1)))
        if sigma * scale.max() < 1e-12:
            return


def walk(module: str, name: str) -> Callable:
    """A step's algorithm while it tunes, without what the step may do before it."""

    def run(race, x, rng):
        sampler = getattr(importlib.import_module(f"pymc_kameleon.samplers.{module}"), name)
        core.run_chain(sampler, race, x, rng, tune=race.budget, draws=0)

    return run


def arrival_phase(race: Race, x: np.ndarray, rng: np.random.Generator) -> dict:
    """The package's own, until it says that it has arrived or that it has not; scales of one, its default budget."""
    race.stops = False
    state = arrival.init(x, race(x))
    while not state.done:
        point = arrival.propose(rng, state)
        state = arrival.tell(rng, state, point, race(point))
    handed = state.log_density
    return {"said": bool(state.arrived), "handed_below": float(f"{race.level - handed:.3g}")}


def whole_step(name: str) -> Callable:
    """A step as users get it, with its arrival phase, on the real model or on one of the right shape."""

    def run(race, x, rng, on=None):
        step = drive.step_class(name)
        # one function of all is counted: a black box learned by itself would be asked behind its back
        whole = {"learn": "all"} if name == "KamiltonianStep" else {}
        with drive.stand_in(len(x)) if on is None else on.model:
            step = step(compile_kwargs={"mode": "FAST_COMPILE"}, **whole)
        step.setup_chain(rng, race.budget, 0)
        step._density._evaluate = race
        point = {"x": np.array(x)} if on is None else on.to_point(x)
        for _ in range(race.budget):
            point, _ = step.step(point)

    return run


METHODS: dict[str, Callable] = {
    "arrival phase": arrival_phase,
    "KamiltonianStep": whole_step("KamiltonianStep"),
    "COBYQA": cobyqa,
    "Powell": powell,
    "CMA-ES": cma,
    "Kamiltonian, walk only": walk("kamiltonian.values.sampler", "ValueKamiltonian"),
    "AdaptiveMetropolis, walk only": walk("adaptive_metropolis", "AdaptiveMetropolis"),
}
CHANGES = {  # whose results depend on the package's source, and on which
    "arrival phase": {"pymc_kameleon.samplers.arrival.phase"},
    "Kamiltonian, walk only": {"pymc_kameleon.samplers.kamiltonian.values.sampler"},
    "AdaptiveMetropolis, walk only": {"pymc_kameleon.samplers.adaptive_metropolis"},
}

# --- cells ---------------------------------------------------------------------------------------


def normal_cells(methods, dimensions, seeds):
    return [
        ("normal", f"{d} {condition:g} {distance:g}", method, seed)
        for d in dimensions
        for condition in CONDITIONS
        for distance in DISTANCES
        for method in methods
        for seed in range(seeds)
    ]


def model_cells(methods, models):
    known = references()
    return [
        ("model", name, method, seed)
        for name in models
        if name in known
        for method in methods
        for seed in range(MODEL_STARTS)
    ]


def cell_key(cell):
    """With a digest of what the result depends on, less what never changes."""
    kind, target, method, _ = cell
    code = [store.digest(CHANGES[method])] if method in CHANGES else []
    code += [store.source(method)] if method == "KamiltonianStep" else []
    code += [model_digest(target)] if kind == "model" else []
    return " | ".join([*map(str, cell), *code])


def run(cell) -> dict:
    """Evaluations if it arrived, else nats below the level and whether the budget was spent."""
    kind, target, method, seed = cell
    rng = np.random.default_rng([key(target), key(method), seed])
    options = {}
    if kind == "normal":
        d, condition, distance = target.split()
        log_density, x = normal(int(d), float(condition), float(distance), seed)
        level = -(int(d) / 2 + 3.0)
    else:
        of = posterior(target)
        log_density, x, level = (
            of.log_density,
            of.starts(0, MODEL_STARTS)[seed],
            reference(target).level,
        )
        options = {"on": of} if method == "KamiltonianStep" else {}
    race = Race(log_density, level, BUDGET)
    extra = None
    with warnings.catch_warnings(), np.errstate(all="ignore"), suppress(_StopError):
        warnings.simplefilter("ignore")
        extra = METHODS[method](race, x, rng, **options)
    return {
        **(extra or {}),
        "arrived": race.arrived,
        "below": float(f"{level - race.best:.3g}"),
        "evaluations": race.evaluations,
    }


def load() -> dict[str, dict]:
    return report.load_cells(STORE)


def save(found: dict[str, dict]) -> None:
    """Add cells to what is in the file by now."""
    report.save_cells(STORE, found, basics.versions())


def run_all(cells, again: bool) -> None:
    """Those that are not stored; saved by the ten, since most take milliseconds."""
    stored = load()
    todo = [c for c in cells if again or cell_key(c) not in stored]
    print(f"{len(todo)} of {len(cells)} cells to run", flush=True)
    found: dict[str, dict] = {}
    for n, cell in enumerate(todo, 1):
        found[cell_key(cell)] = run(cell)
        if n % 10 == 0 or n == len(todo):
            save(found)
            print(f"{n}: {cell}: {found[cell_key(cell)]}", flush=True)
            found = {}


# --- tables and figure ---------------------------------------------------------------------------


def write(dimensions, methods, models, seeds) -> str:
    """results/arrival.md and .png of what is stored of these."""
    stored = load()

    def found(cells):
        return [stored[k] for c in cells if (k := cell_key(c)) in stored]

    normals = {
        (d, condition, distance, m): found([("normal", f"{d} {condition:g} {distance:g}", m, s) for s in range(seeds)])
        for d in dimensions for condition in CONDITIONS for distance in DISTANCES for m in methods
    }  # fmt: skip
    text = [
        "# Arrival",
        " ".join(__doc__.split("\n\n")[1].split())
        + f" {seeds} seeds (`python -m benchmarks.arrival`).",
        f"{basics.versions()}.",
        "## Rotated normals: arrived, and evaluations until then (median, worst)",
        table(
            ["d", *methods],
            [[str(d), *(_over(normals, d, m) for m in methods)] for d in dimensions],
        ),
    ]
    for d in dimensions:
        rows = [
            [f"{condition:g}, {distance:g}", *(_cell(normals[d, condition, distance, m]) for m in methods)]
            for condition in CONDITIONS for distance in DISTANCES
        ]  # fmt: skip
        text += [
            f"### d = {d}: evaluations, median over the seeds [arrived, if not all] (nats below the level)",
            table(["condition, distance", *methods], rows),
        ]
    text += ["## What the arrival phase says of itself", _said(found, models, dimensions, seeds)]
    rows = [
        [f"{name} ({posterior_dim(name)})", *(_starts(found(model_cells([m], [name])), m) for m in methods)]
        for name in models if name in references()
    ]  # fmt: skip
    text += [
        "## Textbook models: evaluations by start (nats below the level where it never arrived)",
        table(["model (d)", *methods], rows),
    ]
    provenance.write(RESULTS / "arrival.md", "\n\n".join(text))
    draw(normals, dimensions, methods)
    return "\n\n".join(text)


def _said(found, models, dimensions, seeds):
    """Of its claims: how many are true of the point handed over (within another d / 2 + 3 of the level)."""
    rows = []
    groups = [
        (f"normals, d = {d}", d, normal_cells(["arrival phase"], [d], seeds)) for d in dimensions
    ]
    groups += [
        (n, posterior_dim(n), model_cells(["arrival phase"], [n]))
        for n in models
        if n in references()
    ]
    for name, d, cells in groups:
        of = found(cells)
        said = [c for c in of if c.get("said")]
        true = sum(c["handed_below"] <= d / 2 + 3 for c in said)
        missed = sum(c["arrived"] is not None for c in of if not c.get("said"))
        ended = f"{np.median([c['evaluations'] for c in of]):.0f}" if of else "–"
        rows.append([name, str(len(of)), str(len(said)), str(true), str(missed), ended])
    head = [
        "target",
        "starts",
        "says it arrived",
        "and has",
        "did not say so, but was there",
        "evaluations to the end",
    ]
    return table(head, rows)


def posterior_dim(name):
    return len(reference(name).mean)


def _over(normals, d, method):
    cells = [
        c for (of, _, _, m), group in normals.items() if of == d and m == method for c in group
    ]
    if not cells:
        return "–"
    arrived = [c["arrived"] for c in cells if c["arrived"] is not None]
    times = f", {np.median(arrived):.0f}, {max(arrived)}" if arrived else ""
    return f"{len(arrived)}/{len(cells)}{times}"


def _cell(cells):
    if not cells:
        return "–"
    arrived = [c["arrived"] for c in cells if c["arrived"] is not None]
    if not arrived:
        return f"no ({digits(float(np.median([c['below'] for c in cells])))})"
    return f"{np.median(arrived):.0f}" + (
        "" if len(arrived) == len(cells) else f" [{len(arrived)}/{len(cells)}]"
    )


def _starts(cells, method):
    """An optimiser that ended before its budget did has converged; a walk has only made draws without evaluations."""
    ends = "walk" not in method and method != "KamiltonianStep"
    found = []
    for c in cells:
        converged = ", converged" if ends and c["evaluations"] < BUDGET else ""
        found.append(f"{c['arrived'] or 'no (' + format(c['below'], '.3g') + converged + ')'}")
    return ", ".join(found) or "–"


def draw(normals, dimensions, methods) -> None:
    """Evaluations against distance (colour: method; row: condition number; column: dimension)."""
    figure, panels = report.subplots(
        len(CONDITIONS), len(dimensions), figsize=(3.2 * len(dimensions) + 1, 9.5), squeeze=False,
        sharex=True, sharey=True,
    )  # fmt: skip
    for row, condition in zip(panels, CONDITIONS, strict=True):
        for panel, d in zip(row, dimensions, strict=True):
            for i, m in enumerate(methods):
                groups = [normals[d, condition, distance, m] for distance in DISTANCES]
                times = [
                    np.median([c["arrived"] or 1.6 * BUDGET for c in g]) if g else np.nan
                    for g in groups
                ]
                panel.plot(DISTANCES, times, f"{'osD^vPX'[i]}-", color=f"C{i}", ms=5, lw=1, label=m)
            panel.axhline(BUDGET, color="0.6", lw=0.8, ls=":")
            panel.set(xscale="log", yscale="log")
            panel.set_title(f"d = {d}, condition number {condition:g}", fontsize=9)
            panel.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("start distance, posterior sds", fontsize=10)
    figure.supylabel(
        "evaluations until the typical set (above the dotted line: not within the budget)",
        fontsize=10,
    )
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="upper center", ncols=len(methods), frameon=False, fontsize=8
    )
    figure.tight_layout(rect=(0, 0, 1, 0.97))
    report.save_figure(figure, RESULTS / "arrival.png", 100)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="METHOD",
                        help="; ".join(METHODS))  # fmt: skip
    parser.add_argument(
        "--models", nargs="*", choices=MODELS, default=list(MODELS), metavar="MODEL"
    )
    parser.add_argument("--dimensions", nargs="*", type=int, default=list(DIMENSIONS))
    parser.add_argument("--seeds", type=int, default=2, help="of the normals; default 2")
    parser.add_argument("--again", action="store_true", help="also what is stored")
    parser.add_argument("--table", action="store_true", help="run nothing")
    arguments = parser.parse_args()
    cells = model_cells(arguments.methods, arguments.models)
    cells += normal_cells(arguments.methods, arguments.dimensions, arguments.seeds)
    if not arguments.table:
        run_all(cells, arguments.again)
    write(DIMENSIONS, list(METHODS), list(MODELS), arguments.seeds)


if __name__ == "__main__":
    main()
