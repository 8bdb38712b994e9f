"""What the work beside evaluations costs, by dimension and number of points.

A full fit of ``KamiltonianStep``'s surrogate, with its held-out error; a gradient of what was fitted; a draw of the
frozen samplers. Processor time of one core, nothing compiled.

    python -m benchmarks.cost           # ten minutes, on a machine that does nothing else
"""

import time

import numpy as np

from benchmarks import cold_start, core, report
from benchmarks.basics import timed
from benchmarks.cells import Benchmark, Cell, Cells
from benchmarks.report import digits, table
from pymc_kameleon.surrogates import transitions
from pymc_kameleon.surrogates.values import features, regression
from pymc_kameleon.targets import Banana, CorrelatedGaussian

FITS = ("fit, curved", "fit, logistic")
DRAWS = ("adaptive_metropolis", "kameleon", "fast_kameleon", "gaussian_mixture", "kamiltonian")
DIMENSIONS, POINTS, HISTORY = (2, 5, 10, 20, 50, 100, 200), (500, 2000, 5000, 20_000, 50_000), 2000


def points(kind: str, d: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points (n, d), their log densities, and which of them are draws."""
    rng = np.random.default_rng([d, n])
    if "curved" in kind:
        target = Banana(0.03, 100.0, d)
        x = target.sample(rng, n)
        mean, log_density = target.mean, target.log_density
    else:
        rows = rng.standard_normal((20 * d, d))
        sign = np.where(rng.random(20 * d) < 1.0 / (1.0 + np.exp(-rows[:, 0])), 1.0, -1.0)
        mean, x = np.eye(d)[0], np.eye(d)[0] + 0.7 * rng.standard_normal((n, d))

        def log_density(x):
            return float(-np.logaddexp(0.0, -sign * (rows @ x)).sum() - 0.125 * x @ x)

    out = np.arange(n) % 4 == 0
    x[out] = mean + 3.0 * (x[out] - mean)
    return x, np.array([log_density(each) for each in x]), ~out


def fitted(cell: Cell) -> dict:
    """Seconds of a fit, its held-out error, and microseconds of a gradient."""
    d, n = int(cell.problem.split()[0]), cell.budget
    if not regression.affordable(d) or n < 1.5 * features.quadratic_size(d):
        return {"points": 0}
    x, y, drawn = points(cell.sampler, d, n)
    rng, held_out = np.random.default_rng(0), (x[drawn][-500:], y[drawn][-500:])
    seconds, fit = timed(lambda: regression.fit(rng, x, y, *held_out))
    metric = transitions.metric(fit.whiten_factor, fit.curvature, fit.quadratic_error)
    dynamics = transitions.make_dynamics(fit.surrogate, metric, x[drawn][-500:], 0.3, fit.error)
    dynamics, _ = transitions.find_step_size(rng, dynamics)
    gradients, spent = 0, 0.0
    for _ in range(2):  # what compiles, compiles the first time
        gradients, begin = 0, time.process_time()
        while gradients < 5000:
            gradients += transitions.run(rng, dynamics.archive[0], dynamics, transitions.ARMS[-1]).gradients
        spent = time.process_time() - begin
    return {
        "points": fit.n_points, "fit": seconds, "error": fit.error, "family": fit.family,
        "gradient": 1e6 * spent / gradients,
    }  # fmt: skip


def drawn(cell: Cell) -> dict:
    """Microseconds of a frozen draw after ``budget`` of tuning."""
    target = CorrelatedGaussian(100.0, int(cell.problem.split()[0]))
    options = {"tune": cell.budget, "draws": 1000}
    rng, start = np.random.default_rng(0), target.sample(np.random.default_rng(1), 1)[0]
    chain = core.run_chain(cold_start.own(cell.sampler), target.numba_log_density, start, rng, **options)
    return {"draw": 1e3 * chain.seconds}


def measure(cell: Cell) -> dict:
    of = fitted if cell.sampler in FITS else drawn
    if cell.problem == f"{DIMENSIONS[0]} dimensions":
        of(cell)  # what compiles, compiles now
    return of(cell)


def exponent(by: dict[float, float]) -> str:
    """The slope of the last three, in logarithms."""
    if len(by) < 3:
        return "–"
    x, y = np.log(sorted(by.items())[-3:]).T
    return digits(np.polyfit(x, y, 1)[0])


def page(cells: Cells) -> str:
    figure, (left, right) = report.subplots(1, 2, figsize=(10.0, 4.2))
    tables = "\n\n".join([*(of_fits(cells, kind, left) for kind in FITS), of_draws(cells, right)])
    left.set(xlabel="points", ylabel="seconds of a full fit", xlim=(30, 7e4))  # room for the names
    right.set(xlabel="dimension", ylabel="µs a draw")
    for panel in (left, right):
        panel.legend(frameon=False, fontsize=7)
    report.save_figure(figure, "cost", 110)
    return report.page("cost", locals())


def of_fits(cells: Cells, kind: str, panel) -> str:
    rows = []
    for d in DIMENSIONS:
        own = {c.budget: m for c, m in cells.items() if (c.sampler, c.problem) == (kind, f"{d} dimensions")}
        made = {n: m for n, m in sorted(own.items()) if m["points"]}
        if made:
            style = "o-" if kind == FITS[0] else "s--"
            panel.loglog(list(made), [m["fit"] for m in made.values()], style, label=f"{kind}, d = {d}")
        shown = {n: f"{digits(m['fit'])} ({digits(m['error'])}, {digits(m['gradient'])})" for n, m in made.items()}
        uncut = {n: m["fit"] for n, m in made.items() if m["points"] > 0.5 * n}
        rows.append([d, *(shown.get(n, "–") for n in POINTS), exponent(uncut)])
    head = ["d", *(f"n = {n:,}" for n in POINTS), "exponent of n"]
    return f"## {kind.capitalize()}: seconds (held-out error, µs a gradient)\n\n{table(head, rows)}"


def of_draws(cells: Cells, panel) -> str:
    rows = []
    for sampler in DRAWS:
        made = {int(c.problem.split()[0]): m["draw"] for c, m in cells.items() if c.sampler == sampler}
        made, name = dict(sorted(made.items())), cold_start.SAMPLERS[sampler][0]
        panel.loglog(list(made), list(made.values()), "o-", label=name)
        rows.append([name, *(digits(made.get(d)) for d in DIMENSIONS), exponent(made)])
    head = ["", *(f"d = {d}" for d in DIMENSIONS), "exponent of d"]
    return f"## A draw: µs, after {HISTORY:,} of tuning\n\n{table(head, rows)}"


def is_wanted(cell: Cell) -> bool:
    """Fits by points, draws after one length of tuning."""
    return cell.sampler in FITS or cell.budget == HISTORY


if __name__ == "__main__":
    problems = [f"{d} dimensions" for d in DIMENSIONS]
    Benchmark("cost", measure, page).command(__doc__, [*FITS, *DRAWS], problems, POINTS, wanted=is_wanted)
