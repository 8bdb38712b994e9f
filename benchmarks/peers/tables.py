"""``results/peers.md``: the summary in words, ratios, and every number, all from the cells."""

import math
from pathlib import Path

from benchmarks import basics, provenance
from benchmarks.cold_start import SPAN, geometric
from benchmarks.peers import figure, reference, samplers
from benchmarks.peers.board import CONVERGED, Board
from benchmarks.peers.cells import MOST_SECONDS, RUNS, SECONDS
from benchmarks.peers.samplers import RIVALS, SAMPLERS
from benchmarks.peers.targets import TARGETS
from benchmarks.report import digits, table

TEXT = Path(__file__).parents[1] / "results" / "peers.md"
HERO = "kamiltonian"
WRONG = 0.3  # errors of means in sds, of log sds

INTRODUCTION = f"""\
{RUNS} independent runs a cell, each with the budget: a chain, or a set of walkers, particles or live points. Half of
a chain's or walker set's evaluations are tuning or thrown away. All start at the same over-dispersed points; methods
that sample from a prior have a uniform box of ten true sds on both sides of the true mean (the twelve targets have no
prior; so they know where the posterior is), and the six models' own priors. Where such a method's size has to fit the
budget, the largest that does is taken, and what looking for it costs is not counted. Effective draws: ArviZ's bulk
ones of the worst coordinate, per 1000 evaluations; Kish's size of weighted draws (pocoMC, nautilus, dynesty), which
sees uneven weights only; of `pm.sample_smc` particles, each once. PyVBMC's draws are of an approximation and have no
effective number. R-hat is the larger of that of the runs and that of all chains or walkers, whose effective draws are
as many as they are if they never move. **\\***: R-hat of {CONVERGED} or more, or one run only: not converged, and the
number says little. **§**: the log density is in the span of KamiltonianStep's surrogates, which can represent it
exactly. "By error": so many independent normal draws per 1000 evaluations have the same squared errors of means and
log sds, over coordinates and runs; it is comparable across kinds, and noisy: {RUNS} runs a seed; of the twelve
targets the starts are about the true mean, so that walkers which stay there have small errors. Unless `--seconds`
gave more, no run of a cell is begun after {SECONDS:.0f} s of processor time, all end at {MOST_SECONDS:.0f}.
`benchmarks/peers/`."""


def label(name: str) -> str:
    """A target's, marked if it is in the span."""
    return f"{name} §" if name in SPAN else name


def mean_of(ratios: list[float]) -> str:
    """Geometric mean, and of how many."""
    return f"{digits(geometric(ratios))} ({len(ratios)})" if ratios else "–"


# --- in words ----------------------------------------------------------------------------------------


def summary(board: Board) -> str:
    """What the cells of a budget say, good and bad."""
    hero = SAMPLERS[HERO].label
    sentences = []
    for words, span in (("", True), (" outside the surrogate's span", False)):
        versus = {s: board.ratios(HERO, s, board.ess, converged=True, span=span) for s in RIVALS}
        best = {
            t: s for t in board.targets if (span or t not in SPAN)
            if (s := board.best(board.ess, t, RIVALS)) and math.isfinite(board.ess(HERO, t))
        }  # fmt: skip
        ratios = [board.ess(HERO, t) / board.ess(s, t) for t, s in best.items()]
        if not ratios:
            sentences.append(f"No rival converged on a target{words}.")
            continue
        sentences.append(
            f"Some rival converged on {len(ratios)} targets{words}: there {hero} has {digits(geometric(ratios))} times "
            f"the effective draws per evaluation of the best of those that did, and fewer than it on "
            f"{sum(r < 1 for r in ratios)}."
        )
        if span and any(versus.values()):
            most = max(versus, key=lambda s: len(versus[s]))
            sentences.append(
                f"The rival that converged most often is {SAMPLERS[most].label} ({len(versus[most])} targets); "
                f"{hero} itself converged on {sum(board.converged(HERO, t) for t in board.targets)} of "
                f"{len(board.targets)}."
            )
    lost = [
        f"{t} ({SAMPLERS[s].label}, {digits(board.ess(s, t))} to {digits(board.ess(HERO, t))}"
        f"{'' if board.converged(HERO, t) else ', where ' + hero + ' has not converged'})"
        for t in board.targets
        if (s := board.best(board.ess, t, RIVALS)) and board.ess(s, t) > board.ess(HERO, t)
    ]
    if lost:
        sentences.append(f"A rival has more effective draws per 1000 on {'; '.join(lost)}.")
    errors = [
        f"{t} ({SAMPLERS[s].label}, {digits(board.by_error(s, t))} to {digits(board.by_error(HERO, t))})"
        for t in board.targets
        if (s := max((r for r in RIVALS if math.isfinite(board.by_error(r, t))),
                     key=lambda r: board.by_error(r, t), default=None))
        and board.by_error(s, t) > board.by_error(HERO, t)
    ]  # fmt: skip
    if errors:
        sentences.append(f"By error a rival is ahead on {'; '.join(errors)}.")
    wrong = silently_wrong(board)
    if wrong:
        sentences.append(
            f"R-hat says converged, and yet means or log sds are off by more than {WRONG:g} with "
            + "; ".join(f"{SAMPLERS[s].label} ({', '.join(ts)})" for s, ts in wrong.items())
            + "."
        )
    nobody = [t for t in board.targets if not board.best(board.ess, t, SAMPLERS)]
    if nobody:
        sentences.append(f"Nobody converged on {', '.join(nobody)}.")
    return " ".join(sentences)


def silently_wrong(board: Board) -> dict[str, list[str]]:
    """By sampler, where R-hat is small and errors are not."""
    found: dict[str, list[str]] = {}
    for s, t in board.cells:
        off = max(board.error(s, t, "mean_error"), board.error(s, t, "sd_error"))
        if board.converged(s, t) and off > WRONG:
            found.setdefault(s, []).append(t)
    return {s: found[s] for s in SAMPLERS if s in found}


# --- tables ------------------------------------------------------------------------------------------


def ratio_table(board: Board) -> str:
    """KamiltonianStep's ratio to every other: where that converged and over all, with the span and without."""
    head = ["sampler", "targets", "converged", "× by ESS, it converged", "… without §", "× by ESS, all", "… without §",
            "× by error, it converged", "… without §", "× by error, all", "… without §"]  # fmt: skip
    rows = []
    for s in board.samplers:
        have = [t for t in board.targets if (s, t) in board.cells]
        row = [SAMPLERS[s].label, f"{len(have)}", f"{sum(board.converged(s, t) for t in have)}"]
        for score in (board.ess, board.by_error):
            for converged in (True, False):
                for span in (True, False):
                    row.append(
                        "" if s == HERO
                        else mean_of(board.ratios(HERO, s, score, converged=converged, span=span))
                    )  # fmt: skip
        rows.append(row)
    return table(head, rows)


def number_table(board: Board, targets, text) -> str:
    """Samplers by targets; ``text`` of a sampler and a target."""
    rows = []
    for s in board.samplers:
        entries = []
        for t in targets:
            if (s, t) in board.cells:
                entries.append(text(s, t) + ("" if board.converged(s, t) else "\\*"))
            else:
                entries.append("✗" if (s, t) in board.failed else "")
        rows.append([SAMPLERS[s].label, *entries])
    return table(["sampler", *map(label, targets)], rows)


def errors(board):
    """Text of a cell: errors of the mean and of the log sd."""
    return lambda s, t: (
        f"{digits(board.error(s, t, 'mean_error'))}, {digits(board.error(s, t, 'sd_error'))}"
    )


def rhat(board):
    """Text of a cell."""
    return lambda s, t: f"{r:.2f}" if math.isfinite(r := board.rhat(s, t)) else "–"


def failures(board: Board) -> str:
    """Who could not be run on what, and why; nobody is left out silently."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for (s, t), why in board.failed.items():
        by_reason.setdefault((s, why), []).append(t)
    rows = [[SAMPLERS[s].label, ", ".join(ts), why] for (s, why), ts in by_reason.items()]
    for s in SAMPLERS:
        if s not in board.samplers:
            rows.append([SAMPLERS[s].label, "all", "not run"])
            continue
        rest = [
            t for t in board.targets if (s, t) not in board.cells and (s, t) not in board.failed
        ]
        if rest:
            rows.append([SAMPLERS[s].label, ", ".join(rest), "not run yet"])
    return table(["sampler", "targets", "could not be run: why"], rows, left=3) if rows else ""


def notes(board: Board) -> str:
    """Settings that depend on the budget, by sampler."""
    found: dict[str, list[str]] = {}
    for (s, t), cells in board.cells.items():
        for note in sorted({c["note"] for c in cells} - {""}):
            found.setdefault(f"{SAMPLERS[s].label}: {note}", []).append(t)
    return "\n".join(f"- {words} ({', '.join(ts)})" for words, ts in sorted(found.items()))


def seeds(board: Board) -> str:
    """How many, in words."""
    counts = [len(cells) for cells in board.cells.values()]
    low, high = min(counts), max(counts)
    return f"{low} seed{'s' * (low > 1)}" if low == high else f"{low} to {high} seeds"


def section(board: Board) -> list[str]:
    """All that there is of one budget."""
    twelve = [t for t in board.targets if list(TARGETS).index(t) < 12]
    six = [t for t in board.targets if t not in twelve]
    parts = [f"## {board.budget:,} evaluations a run, {seeds(board)}"]
    parts += [
        "KamiltonianStep's ratio to every other; in parentheses over how many targets.",
        ratio_table(board),
    ]
    for title, text in (
        ("Effective draws per 1000 evaluations", lambda s, t: digits(board.ess(s, t))),
        ("By error, per 1000 evaluations", lambda s, t: digits(board.by_error(s, t))),
        ("Error of the means in sds, of the log sds", errors(board)),
        ("R-hat", rhat(board)),
    ):
        parts.append(f"### {title}")
        parts += [number_table(board, group, text) for group in (twelve, six) if group]
    missing, said = failures(board), notes(board)
    parts += [f"### Not in the tables\n\n{missing}"] * bool(missing)
    parts += [f"### Settings that follow the budget, and runs that were not made\n\n{said}"] * bool(
        said
    )
    return parts


def text(cells: dict[str, dict]) -> str:
    """The whole result."""
    budgets = sorted({int(key.split(" | ")[2]) for key in cells}, key=lambda b: (b != 10_000, b))
    boards = [Board(cells, budget) for budget in budgets]
    known = [f"- {name}: {r['how']}{nearest(boards, name)}" for name, r in reference.load().items()]
    packages = sorted(
        {
            f"{s.package} {v}"
            for n, s in SAMPLERS.items()
            if s.package and (v := samplers.installed(n))
        }
    )
    parts = [
        "# Peers",
        *[f"{b.budget:,} evaluations a run: {summary(b)}" for b in boards if b.cells],
    ]
    parts += [f"![Effective draws per 1000 evaluations]({figure.PATH.name})", INTRODUCTION]
    for board in boards:
        parts += section(board) if board.cells else []
    parts += ["## References of the six models\n\n" + "\n".join(known)]
    parts += [f"{basics.versions()}; {', '.join(packages)}."]
    return "\n\n".join(parts)


def nearest(boards: list[Board], target: str) -> str:
    """In words, who came nearest to a reference: samplers that know nothing of it agree with it."""
    found = [
        (max(b.error(s, target, n) for n in ("mean_error", "sd_error")), s, b.budget)
        for b in boards
        for s in b.samplers
        if b.converged(s, target)
    ]
    if not found:
        return ""
    off, s, budget = min(found)
    return f"; {SAMPLERS[s].label} at {budget:,} evaluations is within {off:.2f}"


def stale(cells: dict[str, dict]) -> str:
    """In words, which cells the present code has not made."""
    codes = []
    for key, cell in cells.items():
        name = key.split(" | ")[0]
        if name in SAMPLERS:
            made_with = "" if samplers.installed(name) else cell["code"].rpartition(" ")[2]
            codes.append((SAMPLERS[name].label, cell["code"], samplers.code(name, made_with)))
    return provenance.stale_cells(codes)


def write(cells: dict[str, dict]) -> None:
    """Text and figure."""
    provenance.write(TEXT, text(cells), stale_cells=stale(cells))
    figure.draw(Board(cells, 10_000))
