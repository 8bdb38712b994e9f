"""Why draws that R-hat and effective draws are content with are not to be used all the same, in sentences.

Climbs that ended, or probes that lie, where no draws are; heavy tails; draws that end where the surrogate is wrong.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_kameleon.verdict import convergence
from pymc_kameleon.verdict.directions import listed

HOPELESS = 0.04  # of the surrogate's moves from the outermost draws: more than that is a wall of its own
# of all draws, between the last of them and where a parameter ends: missing ones put its mean off by at most 2 % of the
# distance to that end
LITTLE = 0.02
WORSE = 2.0  # times as many as from the other draws: of 13 good runs refused without it, 7 are usable (94 runs)
BLUNT = -0.5  # Pareto k of a density that falls to its end no faster than a line
ENDS = (-1.0, 0.0, 1.0)  # where a parameter may have to end, whatever its model


class Worst(NamedTuple):
    """A parameter, by name and index, its figure, and of which of its tails that is."""

    name: str
    value: float
    tail: str = ""


class Found(NamedTuple):
    """What there is to doubt."""

    attributes: dict[str, Any]
    heavy: list[Worst]
    cut: list[Worst]
    short: list[Worst]  # of positive parameters: draws end before 0 as if cut off, whatever the moves there do
    ends_are_known: bool  # where priors end
    biased: str  # noisy factors, where no step of this package kept their estimates
    derived: tuple[Worst, ...] = ()  # heavy tails of deterministics: of a ratio, whatever the priors are
    # what the model says to have no mean (Pareto k 1) or sd; of k inf where the posterior is improper
    endless: tuple[Worst, ...] = ()
    hidden: str = ""  # Ops that seem to draw random numbers that no step knows of
    stuck: Sequence[str] = ()  # unknowns that are the same in every draw of every chain
    diverged: float = 0.0  # the share of NUTS' draws, where it drew


def find(
    idata: Any, attributes: dict[str, Any], names: list[str], draws: np.ndarray, judged: convergence.Judgement,
    known_ends: Sequence[float] | None = None,
    noisy: str = "", bounded: Sequence[str] = (),
) -> Found:  # fmt: skip
    """Look at ``draws`` (chains, n, elements) for tails, and at what the run says of itself, its ``attributes``.

    ``known_ends`` are those of the parameters' supports, None if they are not known; ``noisy`` names what is estimated,
    ``bounded`` the variables with two ends, whose tails are not heavy however long they look.
    """
    heavy, cut, short = [], [], []
    # a lone chain elsewhere is no tail, nor is a small mode
    if convergence.has_converged(judged) and int(attributes.get("modes", 1)) == 1:
        own, accept = own_moves(idata)
        # where a simulator fails (NaN) the posterior may go on; pm.sample does not tell that from minus infinity
        failed, without = (attributes.get(name, math.inf) for name in ("failed", "nonfinite"))
        tested = own & ~_led_out(idata, own.shape) if 100 * failed < without else own
        ends = {*ENDS, *(() if known_ends is None else known_ends)}
        # Pareto k: 1 / df of Student's t, .45 is 2.2; lognormal .25, normal -.1, normal cut at 1.6 sds -.6
        bounds = convergence.heavy_from(draws)
        for name, x, bound in zip(names, np.moveaxis(draws, 2, 0), bounds, strict=True):
            tails = list(zip(convergence.tail_indices(x), ("lower", "upper"), (-1.0, 1.0), strict=True))
            if name.split("[")[0] not in bounded:
                heavy += [Worst(name, k, tail) for k, tail, _ in tails if k > bound]
            # many a parameter has an end; where the surrogate's moves fail as well, it is a wall of the surrogate's
            ended = [
                (Worst(name, k, tail), sign)
                for k, tail, sign in tails if k < -0.3 and _is_wall(sign * x, [sign * end for end in ends])
            ]  # fmt: skip
            cut += [worst for worst, sign in ended if _moves_fail_beyond(sign * x, tested, accept)]
            # a scale that may be 0: no draw, and no move, has been where a surrogate never goes; and 0 is no further
            # below the draws than they are wide, or it is another positive number
            if 0.0 < 2.0 * x.min() < x.max() and own.any():
                short += [w for w, sign in ended if w.value < BLUNT and sign < 0.0 and w not in cut]
    heavy.sort(key=lambda tail: -tail.value)
    # a step of this package, or sequential Monte Carlo, which retains its particles' estimates too
    biased = "" if {"move", "beta"} & set(idata["sample_stats"]) else noisy
    return Found(attributes, heavy, cut, short, known_ends is not None, biased)


def without(found: Found, derived: Sequence[str]) -> Found:
    """With the heavy tails of the variables that are ``derived`` from the unknowns apart."""
    of_them = tuple(tail for tail in found.heavy if tail.name.split("[")[0] in derived)
    return found._replace(heavy=[tail for tail in found.heavy if tail not in of_them], derived=of_them)


def in_short(found: Found) -> Iterator[str]:
    """For the verdict, the gravest first."""
    if found.hidden:
        yield f"{found.hidden} seems to draw random numbers that no step knows of"
    if found.biased:
        yield f"{found.biased} is noisy, and these steps draw from another distribution"
    if found.stuck:
        yield f"{listed(found.stuck)} never moved"
    if found.diverged > 0.01:  # a few are usual where nothing is missing
        yield f"NUTS diverged in {found.diverged:.0%} of its draws"
    if "ends_elsewhere" in found.attributes:
        yield f"a climb ended where no draws are, at {found.attributes['ends_elsewhere']}"
    if "other_mode" in found.attributes:
        mass, chain = (found.attributes[name] for name in ("other_mode", "other_mode_of"))
        times = f"{float(f'{mass:.2g}'):g} times the mass"
        yield f"a climb ended in another mode, with about {times} of chain {chain}'s, which has not been there"
    if "missed_where" in found.attributes:
        yield "part of the posterior may be missing"
    if found.endless and found.endless[0].value == np.inf:
        yield f"the posterior is improper, nothing bounds {found.endless[0].name}"
    elif found.endless:
        lacks = "mean" if found.endless[0].value > 0.95 else "standard deviation"
        yield f"{found.endless[0].name} has no {lacks}, its prior's tail is all that ends it"
    if found.heavy:
        yield f"the tails of {found.heavy[0].name} are heavy, and its mean is not to be trusted"
    if found.cut:
        yield f"the draws of {found.cut[0].name} end as if cut off, where the surrogate is wrong"


def in_full(found: Found) -> Iterator[str]:
    """With figures, and what to do."""
    if found.hidden:
        yield (
            f"The log density seems to be an estimate: {found.hidden} holds or calls a random number generator. Draws "
            "that take it for exact are of another distribution, however well they converge: "
            "pymc_kameleon.NoisyLogLikelihood(fn) makes it one that steps can keep, and what they draw is exact."
        )
    if found.biased:
        yield (
            f"No step of pymc_kameleon made these draws. Other steps estimate {found.biased} anew at every draw, and "
            "what they sample is too wide, however well it converges: pm.sample(step=pk.KamiltonianStep()) is exact "
            "where the estimate of the likelihood, not of its logarithm, is unbiased."
        )
    if found.stuck:
        yield (
            f"The same in every draw of every chain: {listed(found.stuck)}. The step that samples it has rejected all "
            "that it proposed, and the other draws are given that one value: see its acceptance, begin elsewhere "
            "(initvals=), or let one step sample all variables."
        )
    if found.endless:
        yield (
            f"Far beyond the draws the log density hardly falls along {_listed(found.endless)}: chains have not been "
            "there, and means and outer quantiles are too near. The data do not say how large it is, and the prior has "
            "to: give one with lighter tails."
        )
    if found.heavy:
        yield (
            f"Heavy tails, as far as these draws tell: {_listed(found.heavy)}. Where k is .5 there is no variance, "
            "where it is 1 no mean, and chains have hardly been far out. Medians and intervals are usable where "
            "nothing else is said; for means give priors with lighter tails."
            + (
                ""
                if found.ends_are_known
                else " What has two ends has none, and of what is computed from the unknowns "
                "no prior is to blame: report(idata, model) knows of those."
            )
        )
    if found.derived:
        yield (
            f"Of what is computed from the unknowns, tails are heavy: {_listed(found.derived)}. A ratio has no mean "
            "where what divides may be 0, nor may an exponential have one, whatever the priors are: its median and "
            "intervals are usable."
        )
    if found.cut:
        yield (
            f"Cut off: {_listed(found.cut)}. Over {HOPELESS:.0%} of the surrogate's moves from the outermost draws "
            "had no chance: it is wrong beyond them, or too narrow for its moves, and what lies there may be missing; "
            "or the likelihood jumps down there, and nothing is. Give more evaluations, or another parametrisation."
            + (
                ""
                if found.ends_are_known
                else " Where a prior ends there, nothing is missing: report(idata, model) knows."
            )
        )

    if found.short:
        yield (
            f"Lowest values may be missing: {_listed(found.short)}. A scale that may be 0 has draws ever nearer to it; "
            "these end before, as if the surrogate did not go there, or the model could not be evaluated there. Then "
            "the lower end of its interval is too high, its mean may be, and its logarithm is not to be used. Where "
            "the density ends there by right, "
            "nothing is missing" + ("." if found.ends_are_known else ": of a prior's end report(idata, model) knows.")
        )


def _listed(tails: Sequence[Worst]) -> str:
    return listed([f"{t.name} ({t.tail} tail, Pareto k {t.value:.2f})" for t in tails])


def _is_wall(x: np.ndarray, ends: list[float]) -> bool:
    """Whether the largest draws end before the next of ``ends``.

    It is no wall where few can be missing: as near again to the last draw as that is to the end are fewer than
    ``LITTLE`` of them.
    """
    beyond = [end for end in ends if end >= x.max()]
    if not beyond:
        return True
    distance = np.maximum(min(beyond) - x, np.finfo(float).tiny)
    # by chance eight are there once in 2^7, whatever the end is
    return bool(np.sum(distance < 2.0 * distance.min()) >= max(LITTLE * distance.size, 8.0))


def _moves_fail_beyond(x: np.ndarray, own: np.ndarray, accept: np.ndarray) -> bool:
    """Whether too many of the surrogate's moves from the largest tenth of the draws had no chance (below 1 %).

    Many more than from the other draws: where the log density is noisy, or the surrogate poor, moves fail everywhere,
    and that is no wall.
    """
    if not own.size:
        return False
    outer, hopeless = x[:, :-1] >= np.quantile(x, 0.9), accept[:, 1:] < 0.01
    moves = [own[:, 1:] & which for which in (outer, ~outer)]
    beyond, elsewhere = (float(np.sum(hopeless & which) / max(1, which.sum())) for which in moves)
    error = np.sqrt(beyond / max(1, moves[0].sum()))
    return beyond - 2.0 * error > HOPELESS and beyond > WORSE * elsewhere


def _led_out(idata: Any, shape: tuple) -> np.ndarray:
    """Which moves ended where there is no density at all: an edge of the model's, and no wall of the surrogate's."""
    stats = idata["sample_stats"]
    error = stats["energy_error"].values if "energy_error" in stats else np.zeros(shape)
    return error == np.inf if error.shape == shape else np.zeros(shape, bool)  # several steps have such statistics


def own_moves(idata: Any, begin: Iterable[str] = ("surrogate",)) -> tuple[np.ndarray, np.ndarray]:
    """Which moves were the surrogate's, and how likely each was accepted: (chains, n), or nothing.

    The names of its moves ``begin`` so.
    """
    found = [idata["sample_stats"][name].values for name in ("move", "accept") if name in idata["sample_stats"]]
    if len(found) < 2 or found[0].shape != found[1].shape or found[0].ndim != 2:  # several steps have such statistics
        return np.zeros((0, 0), bool), np.zeros((0, 0))
    moves, accept = found[0].astype(str), found[1]
    return np.any([np.char.startswith(moves, word) for word in (*begin, "jump")], axis=0), accept
