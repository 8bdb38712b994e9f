"""How much a random walk that never stops adapting misses, and what removes it.

M-GaA and the (1+1)-CMA sampler as published adapt at constant rates for ever. Their proposals then
depend on where the chain has just been, and the 50 % region of the target does not get 50 % of the
draws. Four schedules, each the same algorithm otherwise:

    constant      the published rates, throughout
    constant, α   the same with acceptance probabilities in place of zeros and ones
    diminishing   the rates times min(1, (t / 200)^-0.6), throughout
    frozen        the published rates while tuning, none afterwards: what the steps do, except that
                  their rates diminish while tuning too

A second table shows the bias falling in proportion to the rate: diminishing rates leave what belongs
to the rates they have come down to, freezing leaves nothing.

    python -m benchmarks.adaptation_bias

prints the tables (also written as Markdown) and draws the figure; one to two minutes.
"""

import argparse
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba import njit
from scipy import stats

from benchmarks import provenance, report
from pymc_kameleon.samplers import cma
from pymc_kameleon.samplers import gaussian_adaptation as gaa
from pymc_kameleon.samplers.chain import draws
from pymc_kameleon.samplers.seam import Point, acceptance_probability

SCHEDULES = ("constant", "constant, α", "diminishing", "frozen")
RATE_FACTORS = (1.0, 0.5, 0.25, 0.1, 0.05)
CONSTANT, RAO_BLACKWELL, DIMINISHING, FROZEN = range(4)
NORMAL, STUDENT = range(2)


class Target(NamedTuple):
    """A target and its 50 % region."""

    name: str
    dim: int
    kind: int
    radius2: float  # the 50 % region is |x|^2 <= radius2


TARGETS = (
    Target("N(0, I), d = 2", 2, NORMAL, stats.chi2(2).ppf(0.5)),
    Target("t with 5 df, d = 1", 1, STUDENT, stats.t(5).ppf(0.75) ** 2),
)
PLAIN = {"sweeps": 0, "success": "indicator"}  # the adaptation alone, as published
ALGORITHMS = {
    "M-GaA, P = 0.234": (gaa.GaussianAdaptation, PLAIN),
    "M-GaA, P = 1/e": (gaa.GaussianAdaptation, {**PLAIN, "target_accept": math.exp(-1)}),
    "(1+1)-CMA": (cma.CMA, PLAIN),
}

probability_of = njit(acceptance_probability)


@njit
def log_density(x, kind):
    if kind == NORMAL:
        return -0.5 * np.dot(x, x)
    return -3.0 * math.log1p(x[0] * x[0] / 5.0)


@njit
def run(rng, is_cma, state, schedule, kind, radius2, tune, draws):
    """Fraction of draws inside the region, fraction accepted, and the last point of one chain.

    The core's compiled functions in a compiled loop; ``state`` is (log scale, factor, limit of the
    condition number, rate, target acceptance). See ``check_runner``.
    """
    log_scale, factor, condition_limit, rate, target_accept = state
    base, condition, path, success_rate = factor, 1.0, np.zeros(len(factor)), target_accept
    x = np.zeros(len(factor))
    value = log_density(x, kind)
    inside, moves = 0, 0
    for t in range(1, tune + draws + 1):
        z = rng.standard_normal(len(x))
        proposed = gaa.random_walk(x, log_scale, factor, z)
        new_value = log_density(proposed, kind)
        probability = probability_of(value, new_value, 0.0)
        accepted = rng.random() < probability
        if accepted:
            x, value = proposed, new_value
        if t > tune:
            inside += np.dot(x, x) <= radius2
            moves += accepted
            if schedule == FROZEN:
                continue
        now = rate * gaa.rate_multiplier(t) if schedule == DIMINISHING else rate
        success = probability if schedule == RAO_BLACKWELL else 1.0 * accepted
        if is_cma:
            log_scale, factor, path, success_rate, condition = cma.adapted(
                log_scale,
                factor,
                path,
                success_rate,
                base,
                condition,
                condition_limit,
                now,
                target_accept,
                cma.SUCCESS_THRESHOLD,
                success,
                accepted,
                z,
            )
        else:
            log_scale, factor, condition = gaa.adapted(
                log_scale,
                factor,
                base,
                condition,
                condition_limit,
                now,
                target_accept,
                success,
                accepted,
                z,
            )
    return inside / max(draws, 1), moves / max(draws, 1), x


def run_one(rng, kind, options, schedule, target, tune, draws):
    sampler = kind(**options)
    state, is_cma = sampler.init(rng, np.zeros(target.dim)), kind is cma.CMA
    if is_cma:
        scale, rate = state.log_sigma, sampler.rate_factor
    else:
        scale, rate = state.log_radius, kind(**options, diminishing=False).rate_at(1, target.dim)
    packed = (scale, state.factor, sampler.condition_limit, rate, sampler.target_accept)
    return run(rng, is_cma, packed, schedule, target.kind, target.radius2, tune, draws)


def check_runner(algorithm, options, schedule, target, steps=2000):
    """Raise unless the compiled loop makes the chain that propose/accept/adapt make."""
    x = np.zeros(target.dim)
    sampler = algorithm(diminishing=schedule == DIMINISHING, **options)
    rng, point = np.random.default_rng(1), Point(x, log_density(x, target.kind))
    state = sampler.init(rng, x)
    for draw in draws(
        rng, sampler, lambda x: log_density(x, target.kind), point, state, steps, tuning=True
    ):
        x = draw.point.position
    _, _, last = run_one(np.random.default_rng(1), algorithm, options, schedule, target, steps, 0)
    np.testing.assert_allclose(last, x, rtol=1e-8)


def measure(chains, tune, draws, seed):
    """One row per target, algorithm and schedule: error in points, its standard error, acceptance."""
    rows = []
    for target in TARGETS:
        for name, (algorithm, options) in ALGORITHMS.items():
            for schedule in (CONSTANT, DIMINISHING):
                check_runner(algorithm, options, schedule, target)
            for schedule in range(len(SCHEDULES)):
                error, se, moves = coverage_error(
                    algorithm, options, schedule, target, chains, tune, draws, seed
                )
                rows.append((target.name, name, SCHEDULES[schedule], error, se, moves))
                print(format_row(rows[-1]), flush=True)
    return rows


def coverage_error(algorithm, options, schedule, target, chains, tune, draws, seed):
    """Error in points, its standard error over the chains, acceptance rate."""
    results = []
    for child in np.random.SeedSequence(seed).spawn(chains):
        rng = np.random.default_rng(child)
        results.append(run_one(rng, algorithm, options, schedule, target, tune, draws)[:2])
    inside, moves = np.array(results).T
    se = 100 * inside.std(ddof=1) / math.sqrt(chains)
    return 100 * (inside.mean() - 0.5), se, moves.mean()


def measure_rates(chains, tune, draws, seed):
    """(factor, error, standard error) of the CMA sampler at constant rates, on the normal."""
    rows = []
    for factor in RATE_FACTORS:
        options = {**PLAIN, "rate_factor": factor}
        error, se, _ = coverage_error(
            cma.CMA, options, CONSTANT, TARGETS[0], chains, tune, draws, seed + 1
        )
        rows.append((factor, error, se))
        print(format_rate(rows[-1]), flush=True)
    return rows


HEADER = (
    "| target | algorithm | rates | coverage error (points) | s.e. | z | acceptance |\n"
    "|---|---|---|---:|---:|---:|---:|"
)


def format_row(row):
    target, name, schedule, error, se, moves = row
    numbers = f"{error:+.2f} | {se:.2f} | {error / se:+.1f} | {moves:.3f}"
    return f"| {target} | {name} | {schedule} | {numbers} |"


RATE_HEADER = "| factor | coverage error (points) | s.e. | error / factor | its s.e. |\n|---:|---:|---:|---:|---:|"


def format_rate(row):
    factor, error, se = row
    return f"| {factor:g} | {error:+.2f} | {se:.2f} | {error / factor:+.2f} | {se / factor:.2f} |"


def mean_multiplier(tune, draws):
    return np.mean([gaa.rate_multiplier(t) for t in range(tune + 1, tune + draws + 1)])


def draw_figure(rows, rates, path):
    figure, panels = report.subplots(1, 3, figsize=(12, 3.8), width_ratios=(2, 2, 1.4))
    panels[1].sharex(panels[0])
    panels[1].sharey(panels[0])
    for panel, target in zip(panels, TARGETS, strict=False):
        panel.axvline(0.0, color="0.6", lw=1, zorder=0)
        for k, name in enumerate(ALGORITHMS):
            mine = [r for r in rows if r[:2] == (target.name, name)]
            y = np.arange(len(mine))[::-1] + 0.2 * (1 - k)
            error, se = [r[3] for r in mine], [2 * r[4] for r in mine]
            panel.errorbar(error, y, xerr=se, fmt="o", ms=4, lw=1.2, color=f"C{k}", label=name)
        panel.set_yticks(np.arange(len(SCHEDULES))[::-1], SCHEDULES)
        panel.set_title(target.name, fontsize=10)
        panel.set_xlabel("coverage error of the 50 % region (points)")
    panels[0].set_ylabel("rates")
    panels[1].tick_params(labelleft=False)
    factor, error, se = np.array(rates).T
    panels[2].errorbar(factor, -error, yerr=2 * se, fmt="o-", ms=4, lw=1.2, color="C2")
    panels[2].plot(factor, -error[-2] * factor / factor[-2], ls=":", color="0.4")
    panels[2].text(0.4, -error[-2] * 0.5 / factor[-2], "slope 1", ha="right", color="0.4")
    panels[2].set(xscale="log", yscale="log", xlabel="published rates times", ylabel="− error")
    panels[2].set_title("(1+1)-CMA, N(0, I), d = 2", fontsize=10)
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="lower center", ncols=3, frameon=False
    )
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    report.save_figure(figure, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chains", type=int, default=50, help="independent chains a row")
    parser.add_argument("--draws", type=int, default=200_000, help="draws counted a chain")
    parser.add_argument("--tune", type=int, default=20_000, help="draws before, not counted")
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    size = (arguments.chains, arguments.tune, arguments.draws, arguments.seed)
    print(HEADER)
    rows = measure(*size)
    print(RATE_HEADER)
    rates = measure_rates(*size)
    arguments.output.mkdir(parents=True, exist_ok=True)
    draw_figure(rows, rates, arguments.output / "adaptation_bias.png")
    sections = [
        "# Coverage of the 50 % region under four adaptation schedules",
        f"{arguments.chains} chains of {arguments.draws:,} draws after {arguments.tune:,} a row, "
        f"seed {arguments.seed}; the standard error is over the chains.",
        "\n".join([HEADER, *map(format_row, rows)]),
        "(1+1)-CMA on N(0, I), d = 2, the published rates of sigma and C times a constant factor. "
        "Diminishing rates have a mean factor of "
        f"{mean_multiplier(arguments.tune, arguments.draws):.3f} over the draws counted above.",
        "\n".join([RATE_HEADER, *map(format_rate, rates)]),
    ]
    provenance.write(arguments.output / "adaptation_bias.md", "\n\n".join(sections))


if __name__ == "__main__":
    main()
