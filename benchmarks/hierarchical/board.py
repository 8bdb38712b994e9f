"""A cell of the hierarchical models, four chains of a sampler, and the report of all."""

import time

import numpy as np
import pymc as pm

import pymc_kameleon as pk
from benchmarks import drive, report
from benchmarks.basics import Counted
from benchmarks.cells import Benchmark, Cell, read
from benchmarks.hierarchical.models import BOXES, MODELS, Kit
from benchmarks.hierarchical.truth import measured, truth, unconstrained
from benchmarks.rivals import CannotRunError, Task, pymc_steps
from benchmarks.textbook.posterior import Posterior

CHAINS = 4
FEWEST = 20  # draws of a chain, of which R-hat and effective draws mean something
BUDGETS = (300, 500, 1000, 1250, 3000, 10_000)
TOGETHER, SHARED = 16, (500, 1250)  # chains of pk.sample, with the evaluations of four; looked at there
LABELS = {
    "boxes": "`KamiltonianStep()`", "together": "`pk.sample`", "whole": '`learn="all"`',
    "DEMetropolisZ": "`pm.DEMetropolisZ`", "Slice": "`pm.Slice`", "smc": "`pm.sample_smc`",
    "NUTS": "`pm.NUTS` by differences",
}  # fmt: skip
RIVALS = {
    "DEMetropolisZ": lambda task: pymc_steps.step(task, "pm.DEMetropolisZ"),
    "Slice": lambda task: pymc_steps.step(task, "pm.Slice"),
    "smc": pymc_steps.smc,
    "NUTS": pymc_steps.nuts,
}


def measure(cell: Cell) -> dict:
    return rival(cell) if cell.sampler in RIVALS else together(cell) if cell.sampler == "together" else ours(cell)


def tuning(budget: int) -> int:
    """Of a budget of evaluations, ours."""
    return min(budget // 2, 500 + budget // 10)


def ours(cell: Cell) -> dict:
    """``pm.sample`` with KamiltonianStep, calls of black boxes counted."""
    kit, tune = Kit(black=True), tuning(cell.budget)
    model = MODELS[cell.problem](kit)
    with model:
        begin = time.process_time()
        step = pk.KamiltonianStep(tune=tune, learn="auto" if cell.sampler == "boxes" else "all")
        built = time.process_time() - begin
        counter = getattr(kit, "counts", kit)
        counter.calls, begin = 0, time.process_time()
        idata = drive.sample(cell.budget - tune, tune=tune, chains=CHAINS, step=step, random_seed=1000 + cell.seed)
        seconds = time.process_time() - begin
    calls = counter.calls / BOXES[cell.problem] / CHAINS
    return {
        "evaluations": round(calls), "draws": cell.budget - tune, "built": built,
        "milliseconds": 1e3 * seconds / CHAINS / cell.budget,
        **measured(unconstrained(model, idata), calls, truth(cell.problem)),
    }  # fmt: skip


def together(cell: Cell) -> dict:
    """``pk.sample``: sixteen chains that share what they learn, with the evaluations of four chains alone."""
    total, begin = CHAINS * cell.budget, time.process_time()
    with MODELS[cell.problem](Kit(black=True)) as model:
        idata = pk.sample(max_evaluations=total, chains=TOGETHER, random_seed=1000 + cell.seed, progressbar=False)
    spent = int(idata["evaluations"].sizes["evaluation"])
    return {
        "evaluations": round(spent / CHAINS), "draws": idata.posterior.sizes["draw"],
        "milliseconds": 1e3 * (time.process_time() - begin) / spent,
        **measured(unconstrained(model, idata), spent / TOGETHER, truth(cell.problem)),
    }  # fmt: skip


class Hierarchy:
    """A hierarchical model as the rivals take it: the whole log density, its own prior, ``pm.sample``'s starts."""

    def __init__(self, name: str):
        self.posterior = Posterior(name, MODELS[name](Kit(black=True)))
        self.prior_model, self.dim = self.posterior.model, self.posterior.dim
        point = self.prior_model.compile_fn(self.prior_model.varlogp, inputs=self.prior_model.value_vars, point_fn=True)
        self.log_prior = lambda x: float(point(self.posterior.to_point(np.asarray(x))))

    def start(self, seed: int, run: int) -> np.ndarray:
        return self.posterior.starts(seed, run + 1)[run]

    def from_values(self, z: np.ndarray) -> np.ndarray:
        """Particles are in unconstrained coordinates already."""
        return z

    def of_trace(self, point: dict) -> np.ndarray:
        return np.concatenate([np.ravel(point[v.name]) for v in self.posterior.variables])


def rival(cell: Cell) -> dict:
    begin, problem, runs, spent = time.process_time(), Hierarchy(cell.problem), [], 0
    if cell.sampler == "smc" and any(isinstance(rv.owner.op, pm.Flat) for rv in problem.prior_model.free_RVs):
        return {"failed": f"{cell.problem} has no prior from which particles could come"}
    try:
        for k in range(CHAINS):
            log_density = Counted(problem.posterior.log_density, cell.budget)
            task = Task(problem, log_density, cell.budget, cell.seed, k)
            runs.append(RIVALS[cell.sampler](task))
            spent += log_density.evaluations
    except CannotRunError as error:
        return {"failed": str(error)}
    n = min(run.values.shape[1] for run in runs)
    found = {
        "evaluations": round(spent / CHAINS), "draws": n, "note": ", ".join(sorted({run.note for run in runs})),
        "milliseconds": 1e3 * (time.process_time() - begin) / spent,
    }  # fmt: skip
    if n < FEWEST:
        return {**found, "failed": f"{n} draws a chain after tuning"}
    rng, most, x = np.random.default_rng(cell.seed), np.inf, [run.values[0] for run in runs]
    if runs[0].kind == "particles":  # in no order, and some of them copies
        x, most = [rng.permutation(values) for values in x], sum(run.distinct() for run in runs)
    x = np.array([values[-n:] for values in x])
    return {**found, **measured(x, spent / CHAINS, truth(cell.problem), most)}


def page(cells: dict[Cell, dict]) -> str:
    groups: dict[tuple, list] = {}
    for cell, found in cells.items():
        groups.setdefault((cell.problem, cell.budget, cell.sampler), []).append(found)
    order = [(m, b, s) for m in MODELS for b in BUDGETS for s in LABELS if (m, b, s) in groups]
    rows, none, built = [], [], {}
    for name, budget, sampler in order:
        good = [c for c in groups[name, budget, sampler] if "failed" not in c]
        failed = [c["failed"] for c in groups[name, budget, sampler] if "failed" in c]
        none += [f"{LABELS[sampler]} on {name}: {w}".replace(": 1 draws", ": 1 draw") for w in dict.fromkeys(failed)]
        if good:
            rows.append([name, budget, LABELS[sampler], len(good), *figures(good)])
            built[name] = good[-1].get("built", built.get(name))
    head = ["model", "budget a chain", "sampler", "seeds", "per 1000", "R-hat", "mean error", "sd error", "z", "ms"]
    known = read("hierarchical_reference")["cells"]
    references = [
        f"{n}: {known[n]['ess']:,.0f} (R-hat {known[n]['rhat']:.3f}, {known[n]['divergences']} divergences)"
        for n in MODELS if n in known
    ]  # fmt: skip
    said, table, references = summary(cells), report.table(head, rows, left=3), "; ".join(references)
    lacking = f"Without result: {'; '.join(none)}.\n\n" if none else ""
    times = "; ".join(f"{n}: {s:.1f}" for n, s in built.items())
    return report.page("hierarchical", locals())


def figures(runs) -> list[str]:
    def middle(name, digits):
        values = [r[name] for r in runs if name in r]
        return f"{np.median(values):.{digits}f}" if values else ""

    per, z = np.median([r["per_1000"] for r in runs]), [r["z"] for r in runs if "z" in r]
    return [
        f"{per:.0f}" if per >= 10 else f"{per:.2g}", f"{max(r['rhat'] for r in runs):.3f}", middle("error", 2),
        middle("sd_error", 2), f"{max(z):.1f}" if z else "", middle("milliseconds", 1),
    ]  # fmt: skip


def summary(cells: dict[Cell, dict]) -> str:
    """What ``KamiltonianStep()`` reaches, what it does not, and whether R-hat ever hid it."""
    ours = {c: m for c, m in cells.items() if c.sampler == "boxes"}

    def at(budget):
        runs = {n: [m for c, m in ours.items() if (c.problem, c.budget) == (n, budget)] for n in MODELS}
        return {name: found for name, found in runs.items() if found}

    parts, medians = ([], {n: np.median([m["per_1000"] for m in runs]) for n, runs in at(3000).items()})
    if medians:
        low = [f"{name} ({value:.3g})" for name, value in medians.items() if value < 300]
        parts.append(
            f"`KamiltonianStep()` has at least 300 effective draws per 1000 evaluations at 3,000 a chain on "
            f"{len(medians) - len(low)} of {len(medians)} models{_except(low)}."
        )
    few = at(1000)
    if few:
        bad = [n for n, runs in few.items() if any(m["rhat"] >= 1.01 or m["ess"] < 400 for m in runs)]
        parts.append(
            f"With 1,000 a chain every seed has R-hat below 1.01 and 400 effective draws on {len(few) - len(bad)} of "
            f"{len(few)}{_except(bad)}."
        )
    wrong = sorted({f"{c.problem} at {c.budget:,}" for c, m in ours.items() if silently_wrong(m)})
    parts.append(
        f"R-hat below 1.01 and a mean or an sd more than 4.5 standard errors off: {', '.join(wrong)}."
        if wrong
        else "No run of it with R-hat below 1.01 has a mean or an sd more than 4.5 standard errors off."
    )
    return " ".join(parts)


def _except(names):
    return f" (not on {', '.join(names)})" if names else ""


def silently_wrong(found: dict) -> bool:
    """Whether a mean or an sd is off by more than 4.5 standard errors though R-hat is below 1.01."""
    return found.get("rhat", 2.0) < 1.01 and found.get("z", 0.0) > 4.5


BENCHMARK = Benchmark("hierarchical", measure, page, dict.fromkeys(RIVALS, "pymc"))
