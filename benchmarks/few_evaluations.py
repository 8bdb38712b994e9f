"""Effective draws from 500 to 5,000 log density evaluations in all: chains that learn together, beside others.

The twelve targets of `cold_start`, from its over-dispersed starts; nothing is set by hand, and every evaluation counts:
starts, tuning and draws. A budget is a *total*, for all chains together. The page says who is compared, by what.

    python -m benchmarks.few_evaluations                           # 35 minutes
    python -m benchmarks.few_evaluations --samplers "together, 16 chains" --budgets 2000
    python -m benchmarks.few_evaluations_workers                   # wall time by workers, for the same page

emcee is in the extra ``bench``; where it is not installed its cells are left as they are stored.
"""

import math
import warnings

import numpy as np

from benchmarks import basics, core, few_evaluations_workers, report
from benchmarks.cells import Benchmark, Cell
from benchmarks.rivals import CannotRunError, Draws, Task, pymc_steps
from benchmarks.targets import TARGETS, Boxed, starts
from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian
from pymc_kameleon.samplers.pooled.chains import Chains, posterior
from pymc_kameleon.samplers.pooled.plan import Plan, automatic
from pymc_kameleon.verdict import convergence

ALONE = 4  # chains, where they learn alone
SECONDS = 100.0  # of processor time of a rival's run
TOTALS = (500, 1000, 2000, 5000)
TOGETHER = {f"together, {n} chains": n for n in (4, 16, 64)}
HERO, GOAL = ("together, 16 chains", (2000, 300.0, 1.02))  # total, effective draws, R-hat: on eight of the twelve
LABELS = {"alone": "alone, 4 chains", "demetropolisz": "pm.DEMetropolisZ", "smc": "pm.sample_smc"}
PACKAGES = {"demetropolisz": "pymc", "smc": "pymc", "emcee": "emcee"}


def plan(target: str, chains: int, total: int) -> Plan:
    """As ``pk.sample(max_evaluations=total)``."""
    return automatic(TARGETS[target].dim, chains, most=total)


def pooled(cell: Cell, chains: int, log_density, audits: int = 0) -> Chains:
    """A run of chains that learn together; the point that is evaluated first is a start, too."""
    points = starts(cell.problem, cell.seed, chains + 1)
    how = plan(cell.problem, chains, cell.budget)._replace(audits=audits)
    made = Chains(points[-1], points[:-1], np.random.SeedSequence([cell.seed, chains]), how)
    while not made.done:
        made.tell([log_density(request.position) for request in made.ask()])
    return made


def alone(cell: Cell, log_density) -> Draws:
    """Four chains, each with its share of the budget."""
    budget, rngs = cell.budget // ALONE, basics.generators([cell.seed, 1], ALONE)
    how = {"tune": budget // 2, "draws": budget - budget // 2 - 1, "arrives": True}
    streams = zip(starts(cell.problem, cell.seed), rngs, strict=True)
    return Draws(np.array([core.run_chain(ValueKamiltonian, log_density, x, rng, **how).draws for x, rng in streams]))


def demetropolisz(cell: Cell, log_density) -> Draws:
    """Four chains of PyMC's step, each with its share of the budget."""
    found = []
    for k in range(ALONE):
        share = basics.Counted(log_density, cell.budget // ALONE)
        task = Task(Boxed(cell.problem), share, cell.budget // ALONE, cell.seed, k)
        found.append(pymc_steps.step(task, "pm.DEMetropolisZ").values[0])
    n = min(map(len, found))
    return Draws(np.array([draws[-n:] for draws in found]))


def emcee(cell: Cell, log_density) -> Draws:
    """32 walkers, or twice as many as unknowns; differential evolution, 0.8, and snooker, 0.2; half is thrown away."""
    import emcee as package

    n = max(32, 2 * TARGETS[cell.problem].dim)
    moves = [(package.moves.DEMove(), 0.8), (package.moves.DESnookerMove(), 0.2)]
    sampler = package.EnsembleSampler(n, TARGETS[cell.problem].dim, log_density, moves=moves)
    state = np.random.RandomState(cell.seed).get_state()
    begin = package.State(starts(cell.problem, cell.seed, n), random_state=state)
    sampler.run_mcmc(begin, cell.budget // n - 1)  # where the walkers begin is evaluated, too
    made = sampler.get_chain().swapaxes(0, 1)
    return Draws(made[:, made.shape[1] // 2 :])


def run(cell: Cell, log_density: basics.Counted) -> Draws:
    """One run of a sampler with the whole budget."""
    if cell.sampler in TOGETHER:
        return Draws(posterior(pooled(cell, TOGETHER[cell.sampler], log_density)))
    if cell.sampler == "smc":
        return pymc_steps.smc(Task(Boxed(cell.problem), log_density, cell.budget, cell.seed, 0))
    return {"alone": alone, "demetropolisz": demetropolisz, "emcee": emcee}[cell.sampler](cell, log_density)


def measure(cell: Cell) -> dict:
    is_rival, target = cell.sampler in PACKAGES, TARGETS[cell.problem]
    counted = basics.Counted(target.numba_log_density, cell.budget, seconds=SECONDS if is_rival else math.inf)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = judged(run(cell, counted), target)
    except CannotRunError as error:
        found = {"failed": str(error)}
    except Exception as error:  # of a package: it is reported, and the others go on
        if not is_rival:
            raise
        found = {"failed": f"{type(error).__name__}: {str(error).split(chr(10))[0][:100]}"}
    return found | {"evaluations": counted.evaluations}


def judged(draws: Draws, target) -> dict:
    """Effective draws, R-hat where there are chains, errors."""
    mean, sd = draws.moments()
    true = np.sqrt(np.diag(target.cov))
    errors = (mean - target.mean) / true, np.log(np.maximum(sd, 1e-300) / true)
    mean_error, sd_error = (float(np.sqrt(np.mean(np.square(e)))) for e in errors)
    found = {"mean_error": mean_error, "sd_error": sd_error, "draws": draws.values.shape[1]}
    if draws.kind == "particles":
        return found | {"ess": float(draws.distinct()), "rhat": None}
    verdict = convergence.judge(draws.values)
    return found | {"ess": verdict.ess, "rhat": verdict.rhat}


def _of(cells, sampler, total):
    """By target, then by seed."""
    found: dict[str, dict] = {}
    for cell, made in sorted(cells.items()):
        if (cell.sampler, cell.budget) == (sampler, total):
            found.setdefault(cell.problem, {})[cell.seed] = made
    return found


def _median(runs, name):
    values = [run[name] for run in runs if run.get(name) is not None]
    return float(np.median(values)) if values else math.nan


def goal_table(cells) -> tuple[str, list[float]]:
    """The goal's row, every seed by itself, and of each target the share of seeds that reach it."""
    total, least, most = GOAL
    found, rows, shares = _of(cells, HERO, total), [], []
    for target in (t for t in TARGETS if t in found):
        runs = list(found[target].values())
        good = [r["ess"] >= least and (r["rhat"] or math.inf) < most for r in runs]
        shares.append(sum(good) / len(good))
        rows.append([
            target, ", ".join(f"{r['ess']:.0f}" for r in runs),
            ", ".join("-" if r["rhat"] is None else f"{r['rhat']:.3f}" for r in runs),
            *(f"{_median(runs, name):.2f}" for name in ("mean_error", "sd_error")), f"{sum(good)} of {len(good)}",
        ])  # fmt: skip
    head = ["target", "effective draws, seed by seed", "R-hat", "error of means, sds", "error of sds", "reached"]
    return report.table(head, rows, left=3), shares


def medians(cells, total, samplers, title) -> list[str]:
    found = {s: _of(cells, s, total) for s in samplers}
    shown = [s for s in samplers if found[s]]
    if not set(shown) - {HERO}:  # stands in the goal's table
        return []
    seeds = max(len(by_seed) for s in shown for by_seed in found[s].values())
    rows = [[target, *(_entry(found[s].get(target)) for s in shown)] for target in TARGETS]
    return [
        f"## {total:,} evaluations in all: {title}",
        f"Effective draws; R-hat; errors of means and of sds. Medians over at most {seeds} seeds.",
        report.table(["target", *(LABELS.get(s, s) for s in shown)], rows, left=len(shown) + 1),
    ]


def _entry(by_seed):
    if not by_seed:
        return ""
    made = [run for run in by_seed.values() if "failed" not in run]
    if not made:
        return next(iter(by_seed.values()))["failed"]
    ess, rhat, mean, sd = (_median(made, n) for n in ("ess", "rhat", "mean_error", "sd_error"))
    parts = [f"{ess:.0f}" if math.isfinite(ess) else "-", f"{rhat:.3f}" if math.isfinite(rhat) else "-"]
    some = [f"{len(made)} of {len(by_seed)} runs"] if len(made) < len(by_seed) else []
    return "; ".join([*parts, *some, f"{mean:.2f}, {sd:.2f}"])


def page(cells) -> str:
    (total, least, most), (goal, shares), parts = GOAL, goal_table(cells), []
    targets, every, often = len(shares), shares.count(1.0), sum(s > 0.5 for s in shares)
    for title, samplers in (("ours by chains", [*TOGETHER, "alone"]), ("others", [HERO, *PACKAGES])):
        for budget in TOTALS:
            parts += medians(cells, budget, samplers, title)
    tables, workers = "\n\n".join(parts), few_evaluations_workers.table()
    return report.page("few_evaluations", globals() | locals())


BENCHMARK = Benchmark("few_evaluations", measure, page, PACKAGES)

if __name__ == "__main__":
    BENCHMARK.command(
        __doc__, [*TOGETHER, "alone", *PACKAGES], list(TARGETS), TOTALS, 3,
        lambda cell: cell.budget >= 4 * TOGETHER.get(cell.sampler, 1),
    )  # fmt: skip
