"""Looking where no chain goes: draws from the flattened surrogate, evaluated beside the chains' own.

Chains that share a surrogate share its blind spots: a corner of the posterior that tuning has not seen is missing from
all, and R-hat is none the wiser. Some of the frozen phase's evaluations go to draws from exp(f / 2) and exp(f / 4),
which reach farther than any chain. One of them at which the log density is as high as at the chains' draws and far
above f is a place where the chains ought to be and where only the random walk brings them. The probes are no draws, and
change none.
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from pymc_kameleon.samplers.kamiltonian import trust

SHARE = 0.05  # of the evaluations after tuning


class Found(NamedTuple):
    """What probes have found."""

    probes: int  # how many there were
    missed: int  # of these, as high as the chains' draws where the surrogate is far too low
    where: np.ndarray | None  # (d,): the highest of the missed


def together(found: Iterable[Any]) -> Any:
    """Several in one, of probes or of looks: two counts, and the first place that one of them tells."""
    parts = list(found)
    looked, told, places = zip(*parts, strict=True)
    where = next((x for x in places if x is not None), None)
    return type(parts[0])(sum(looked), sum(told), where)


def due(round_: int, members: int) -> int:
    """How many probes go with this round: fixed by its number, so that no draw depends on what was found.

    As many as there are members, once in 1 / ``SHARE`` rounds: workers of whom there are as many as members would wait
    for a single one as long as for a round of their own.
    """
    every = round(1.0 / SHARE) if SHARE else math.inf
    return members if round_ % every == every // 2 - 1 else 0


def propose(rng: np.random.Generator, surrogate: Any, number: int) -> np.ndarray:
    """The end of a free chain from an archived state, reversible with respect to the flattened exp(f)."""
    z = surrogate.archive[rng.integers(len(surrogate.archive))]
    return surrogate.run(rng, z, (0.5, 0.25)[number % 2])[1]


def judge(surrogate: Any, positions: np.ndarray, log_densities: np.ndarray, drawn: np.ndarray) -> Found:
    """What the probes say of the frozen surrogate, a :class:`~pymc_kameleon.samplers.pooled.by_values.Frozen`.

    Parameters
    ----------
    positions, log_densities : ndarray of shape (n, d), (n,)
        The probes.
    drawn : ndarray
        Log densities of the chains' draws.
    """
    if not len(positions):
        return Found(0, 0, None)
    mixture, (_, f, _) = surrogate.mixture, surrogate.located(positions)
    typical = mixture.typical + mixture.slack  # the slack is large where estimates are noisy
    too_low = np.array([trust.is_too_low(r, typical) for r in log_densities - f])
    missed = too_low & (log_densities >= np.quantile(drawn, 0.05))  # plausible
    where = positions[np.argmax(np.where(missed, log_densities, -math.inf))]
    return Found(len(positions), int(missed.sum()), where if missed.any() else None)
