"""What results say that README, docs and notebooks quote: for each sentence of ``benchmarks.quoted`` its figures."""

import math
import re
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.report import RESULTS, digits

WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def table(result: str, under: str = "") -> Iterator[list[str]]:
    """Rows of a result's tables, heads included, in the section whose heading has the words ``under``."""
    text = (RESULTS / f"{result}.md").read_text("utf-8")
    for section in re.split(r"^(?=#+ )", text, flags=re.MULTILINE):
        if under in section.split("\n", 1)[0]:
            for line in section.splitlines():
                if line.startswith("|"):
                    yield [cell.replace("\\", "").strip() for cell in line.strip("|").split("|")]


def row(result: str, *first: str, under: str = "") -> list[str]:
    """The cells of the row that begins with these."""
    for cells in table(result, under):
        if cells[: len(first)] == list(first):
            return cells
    raise LookupError(f"results/{result}.md has no row {' | '.join(first)} under {under!r}")


def number(cell: str) -> float:
    """The first number in a cell."""
    found = re.search(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]\d+)?", cell)
    if found is None:
        raise LookupError(f"no number in {cell!r}")
    return float(found[0].replace(",", ""))


def numbers(cell: str) -> list[float]:
    """All of them, with commas between."""
    return [number(part) for part in cell.split(", ")]


def said(count: float) -> str:
    """A count, in a word up to twelve."""
    return WORDS[int(count)] if count < len(WORDS) else f"{count:.0f}"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]])) or "none"


COLD = "10,000 evaluations per chain"


def ratios(sampler: str) -> list[str]:
    """Of the twelve targets: seeds; by effective draws over all, without §, where one of PyMC's converges."""
    cells = row("cold_start", sampler, under=COLD)
    return [cells[1], cells[2], cells[3], digits(number(cells[4]))]


def best() -> list[str]:
    """What the README says of KamiltonianStep, and over how many targets."""
    cell = row("cold_start", "Kamiltonian", under=COLD)[4]
    return [digits(number(cell)), said(number(cell.split("(")[1]))]


def converged() -> list[str]:
    """On how many of the twelve targets one of PyMC's gradient-free steps converges."""
    return best()[1:]


def textbook() -> list[str]:
    """Models, how many are good, and how many are silently wrong."""
    cells = row("textbook", "KamiltonianStep", under="In short")
    good, of = cells[1].split("/")
    return [of, good, said(number(cells[3]))]


def microseconds(*steps: str) -> list[str]:
    """Of a step by the evaluation, tuning and the textbook models' own counted."""
    return [row("textbook", step, under="In short")[6] for step in steps]


def rare_corner() -> list[str]:
    """Of the posterior of UCI Glass: in the long run, and in two short ones with their R-hat."""
    text = (RESULTS / "glass.md").read_text("utf-8")
    both = re.search(r"both at once ([\d.]+)\.\n", text)
    if both is None:
        raise LookupError("results/glass.md does not say how often both are long")
    short = [row("glass", step, under="The steps") for step in ("GaussianMixtureStep", "FastKameleonStep")]
    shares = [100 * float(both[1]), *(number(cells[7]) for cells in short)]
    return [*(f"{share:.1f}" for share in shares), *(f"{number(cells[4]):.2f}" for cells in short)]


def noise(sd: str) -> list[str]:
    """Posterior sds under noise: KameleonStep's and DEMetropolisZ's."""
    return [row("noisy_likelihood", sd, step)[3] for step in ("KameleonStep", "DEMetropolisZ")]


def too_wide() -> list[str]:
    """The sd that DEMetropolisZ finds at a noise of 1.5, for 1."""
    return [f"{number(noise('1.5')[1]):.2f}"]


def beside() -> list[str]:
    """The sd of a variable beside a noisy factor by PyMC's Metropolis, for 1."""
    return [row("noisy_likelihood", "pm.Metropolis")[2].split(" ")[0]]


def volatility() -> list[str]:
    """Effective draws per 1000 estimates of KameleonStep on the particle filter: few and correlated, more and fresh."""
    rows = [r for r in table("noisy_likelihood", "Stochastic volatility") if r[3] == "KameleonStep"]
    found = {(r[0], r[2]): f"{number(r[6]):.0f}" for r in rows}
    return [found["20", "0.99"], found["50", "fresh"]]


def curved() -> list[str]:
    """Of three steps: times the best of PyMC's in the mean, and where it is least."""
    effective = list(table("curved", "Effective draws per 1000"))
    theirs = [k for k, name in enumerate(effective[0]) if name.startswith("pm.")]
    found = []
    for step in ("FastKameleonStep", "FastKameleonStep:screen=0", "GaussianMixtureStep"):
        k = effective[0].index(step)
        least = min(number(r[k]) / max(number(r[j]) for j in theirs) for r in effective[2:])
        found += [row("curved", step, under="In short")[5], digits(least)]
    return found


def verdicts() -> list[str]:
    """Runs, said, true; good, kept; intervals said to hold, and that held."""
    _, runs, yes, true, good, kept, intervals, held = row("verdicts", "all")
    return [runs, yes, true, good, kept, held, intervals]


TWO_THOUSAND = "2,000 evaluations in all, 16 chains"


def together() -> list[Any]:
    """Seeds; least and most effective draws of pk.sample on targets that all reach, how many; on others; on none."""
    rows = list(table("few_evaluations", TWO_THOUSAND))[2:]
    reached = {r[0]: r[5].split(" of ") for r in rows}
    whole = [r for r in rows if len(set(reached[r[0]])) == 1]
    draws = [e for r in whole for e in numbers(r[1])]
    part = [f"{n} ({said(int(k))})" for n, (k, of) in reached.items() if 0 < int(k) < int(of)]
    no = [name for name, (k, _) in reached.items() if int(k) == 0]
    seeds, counts = said(int(whole[0][5].split(" of ")[1])), [said(len(whole)), said(len(rows))]
    return [seeds, f"{min(draws):.0f}", f"{max(draws):,.0f}", *counts, listed(part), listed(no)]


def workers() -> list[str]:
    """How many times as fast sixteen are."""
    rows = [digits(float(r[4])) for r in table("few_evaluations", "Wall time") if r[2] == "16"]
    short, longer, slow = rows  # in the order of few_evaluations_workers.ROWS
    return [slow, short, longer]


def apart() -> list[str]:
    """The weight of one of two modes and the reports, seed by seed: 2,000 evaluations, without, 4,000."""
    found = [row("modes", "apart", *which) for which in (("2000", "after"), ("2000", "before"), ("4000", "after"))]
    return [cell for cells in found for cell in (cells[4], cells[10])]


def looking() -> list[str]:
    """Share of the evaluations that looking for modes takes: least and most of the targets' means."""
    shares = [number(r[7]) for r in table("discovery") if r[1] == "after"]
    return [f"{min(shares):.0f}", f"{max(shares):.0f}"]


def per_1000(*which: tuple[str, int]) -> list[str]:
    """Effective draws per 1000 evaluations of KamiltonianStep by model and budget: medians over seeds."""
    return [row("hierarchical", model, str(budget), "`KamiltonianStep()`")[4] for model, budget in which]


def company() -> list[str]:
    """Effective draws of sixteen chains together, in those of four alone; the worst R-hat; by evaluations in all."""
    found = []
    for budget in ("500", "1250"):
        rows = [r for r in table("hierarchical") if r[1:3] == [budget, "`pk.sample`"]]
        ratio = [number(r[4]) / number(per_1000((r[0], budget))[0]) for r in rows]
        mean = math.exp(sum(map(math.log, ratio)) / len(ratio))
        found += [digits(mean), f"{max(number(r[5]) for r in rows):.3f}"]
    return [said(len(rows)), *found]


def regions() -> list[str]:
    """Seconds, and effective draws a second, of two ways to run eight regions' epidemics: medians, the last by seed."""
    found = []
    for sampler in ("`pk.sample`", "`pm.sample(step=KamiltonianStep())`"):
        rows = [r for r in table("regions") if r[0] == sampler]
        found += [
            f"{statistics.median(number(r[2]) for r in rows):.0f}",
            digits(statistics.median(number(r[5]) for r in rows)),
        ]
    return [*found[:3], " and ".join(r[5] for r in rows)]


def coordinates(step: str, model: str, evaluations: str) -> list[str]:
    """With coordinates of the graph, and with the model's own: effective draws, R-hat, errors of log sds."""
    return [
        re.sub(r" \((.*), sd (.*)\)", r", \1, log sds to \2", c)
        for c in row("parametrization", model, under=f"{step}, {evaluations}")[2:4]
    ]


def tuned(particles: str) -> list[str]:
    """Effective draws per 1000 evaluations of two steps by how the particles are chosen, by two seeds."""
    cells = [row("tuned_work", step, particles)[5] for step in ("KamiltonianStep", "FastKameleonStep")]
    return [", ".join(digits(x) for x in numbers(cell)) for cell in cells]


def filters() -> list[str]:
    """Variances of a particle filter's log estimate, by particles."""
    return [f"{number(row('particle_filter', 'systematic', n)[3]):.2f}" for n in ("50", "200", "800")]


def changes() -> list[str]:
    """Sds of the change of its log estimate, by order and correlation."""
    found = [number(row("particle_filter", *which)[2]) for which in (("no", "0.0"), ("no", "0.99"), ("yes", "0.99"))]
    return [f"{found[0]:.2f}", f"{found[1]:.2f}", f"{found[2]:.3f}"]


def on_glass() -> list[str]:
    """Effective draws per 1000 estimates."""
    steps = ("KamiltonianStep", "KameleonStep", "pm.DEMetropolisZ")
    return [digits(number(row("glass", step, under="The steps")[2])) for step in steps]


def hamiltonian() -> list[str]:
    """Effective draws per 1000 of Hamiltonian Monte Carlo with the true gradient, on the papers' banana."""
    return [digits(number(row("paper_banana", "HMC, true gradient")[4]))]


def scales() -> list[str]:
    """A hierarchy and a funnel as one number: effective draws per 1000."""
    head = next(table("cold_start", "Effective draws per 1000 evaluations"))
    k = head.index("Kamiltonian")
    return [row("cold_start", name, under="Effective draws per 1000")[k] for name in ("eight schools", "funnel §")]
