"""Which kernel of a surrogate sampler pays: the arms on the surrogate, or the random walk.

An arm proposes the end of K inner transitions on the surrogate f. If its proposals are always accepted the
chain is a chain on f, with an autocorrelation time tau that costs no evaluation to find out: every arm is
tried on f from archived states, or has a time once for all surrogates. With acceptance probability a, which has to
be seen one evaluation at a time, its effective draws per draw are about

    a / {(2 - a) tau},

exactly so for independent proposals. tau is the geometric mean of the coordinates' and of their squares':
a trajectory of half a period is perfect for the mean and useless for the spread. Work counts too, at a
fixed price in evaluations for the arithmetic of f: nothing looks at a clock, so that a run is
reproducible.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_kameleon.samplers.kamiltonian.learner import price
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.transitions import ARMS, LONG, MAX_LEAPFROG, Arm, Dynamics
from pymc_kameleon.surrogates.values import features as value_features

ENOUGH = 1.15  # autocorrelation time below which no longer arm is tried
PRIOR_TRIALS = 5.0  # what the fit's held-out residual counts for, in trials


class Choice(NamedTuple):
    """Arms to choose among, and what their length costs."""

    arms: tuple[Arm, ...] = ARMS  # cheapest first
    lengths: tuple[int, ...] = (16, 20, 6, 6)  # of the free chains that each is tried by: the long arms need fewer
    chains: int = 20  # from archived states
    # multiply-adds that a patient trial may take, some seconds: with 700 centres in 32 dimensions six times as many
    # chains, three times as long, took 40 s
    most: float = 1e10
    times: tuple[float, ...] = ()  # where none is tried, autocorrelation times that count for all surrogates


CHEAP = Choice()
# For a log density that takes longer than a free chain however long: as few evaluations as can be. The times are means
# over twelve targets of what free chains found (8 to 21, 1.4 to 8, 1 to 6 for the first three). Such chains on every
# surrogate instead took twice the time of the whole, for .98 +- .03 times the draws (benchmarks.few_evaluations).
DEAR = Choice(
    arms=(ARMS[0], ARMS[2], LONG, LONG._replace(transitions=3 * LONG.transitions)),
    times=(15.0, 4.0, 3.0, 1.3),
)


class Worth(NamedTuple):
    """What has been seen of every kernel, the random walk first."""

    # (1 + arms,): sum of the acceptance probabilities of its proposals, and their number; those
    # from before the last refit count a tenth
    accepted: np.ndarray
    trials: np.ndarray  # (1 + arms,)
    # (d,): expected squared jumps of the random walk, summed over its proposals, in units of
    # ``spread``
    squares: np.ndarray
    spread: np.ndarray  # (d,): standard deviations of the posterior, as known
    expected: float  # acceptance probability that the fit's held-out residual promises
    # (arms,): autocorrelation time of a free chain, geometric mean of that of the slowest
    # coordinate and that of the slowest square
    times: np.ndarray
    work: np.ndarray  # (arms,): of one proposal's gradients, in evaluations of the log density
    tried: int  # at how many evaluations the arms were tried


def empty(d: int, choice: Choice = CHEAP) -> Worth:
    """Nothing has been seen."""
    arms = len(choice.arms)
    times = np.array(choice.times or [np.inf] * arms)
    return Worth(np.zeros(1 + arms), np.zeros(1 + arms), np.zeros(d), np.ones(d), 0.0, times, np.zeros(arms), 0)


def after_refit(
    rng, worth: Worth, dynamics: Dynamics, residual_sd: float, spread, evaluations: int, choice: Choice = CHEAP
) -> Worth:  # fmt: skip
    """Try every arm on the new surrogate, unless times are given; what the old one's were worth is mostly forgotten."""
    # two values of a normal residual: the mean of min(1, exp(r' - r)) is 2 Phi(-s / sqrt 2)
    expected = math.erfc(0.5 * residual_sd)
    alike = min(expected, worth.expected) > 0.85 and abs(expected - worth.expected) < 0.05
    # A surrogate that was good where the chain had been says nothing of a mode that it has found since.
    if not choice.times and (not alike or evaluations > 1.5 * worth.tried):
        worth = tried_anew(rng, worth, dynamics, evaluations, choice)
    return worth._replace(
        accepted=0.1 * worth.accepted, trials=0.1 * worth.trials, spread=spread, expected=expected,
        squares=0.1 * worth.squares * np.square(worth.spread / spread),
    )  # fmt: skip


def tried_anew(rng, worth: Worth, dynamics: Dynamics, evaluations: int, choice: Choice, patience=(1, 1)) -> Worth:
    """Try every arm by free chains, ``patience`` times as long and as many as usual, as far as that is affordable."""
    each = value_features.work(dynamics.surrogate)
    longer, more = patience
    affordable = choice.most / (each * _gradients(dynamics, choice))
    patience = max(1, min(longer, int(affordable))), max(1, min(more, int(affordable / longer)))
    times, gradients = try_arms(rng, dynamics, choice, patience)
    return worth._replace(times=times, work=price(gradients, each), tried=evaluations)


def learn(worth: Worth, kernel: int, jump: np.ndarray, accept_prob: float) -> Worth:
    """Count one evaluated proposal, ``jump`` (d,) away."""
    accepted, trials = worth.accepted.copy(), worth.trials.copy()
    accepted[kernel] += accept_prob
    trials[kernel] += 1
    squares = worth.squares
    if kernel == 0:
        squares = squares + accept_prob * np.square(jump / worth.spread)
    return worth._replace(accepted=accepted, trials=trials, squares=squares)


def try_arms(rng, dynamics: Dynamics, choice: Choice = CHEAP, patience=(1, 1)) -> tuple[np.ndarray, np.ndarray]:
    """Autocorrelation times (arms,) and mean gradients (arms,) of free chains from archived states.

    The arms come cheapest first, and when one is nearly independent no longer one is tried: its time is infinite.
    """
    n = len(choice.arms)
    times, gradients = np.full(n, np.inf), np.full(n, np.inf)
    archive = dynamics.archive
    spread = archive.std(axis=0)
    centre, spread = archive.mean(axis=0), np.where(spread > 0.0, spread, 1.0)  # one state may be all of it
    for k, (arm, length) in enumerate(zip(choice.arms, choice.lengths, strict=True)):
        states, gradients[k] = free_chains(rng, dynamics, arm, patience[0] * length, choice.chains * patience[1])
        states = (states - centre) / spread
        times[k] = math.sqrt(_slowest(states) * _slowest(np.square(states)))
        if times[k] < ENOUGH:
            break
    return times, gradients


def _gradients(dynamics, choice):
    """About how many a trial without patience takes."""
    leaps = [min(arm.time / dynamics.step_size + 1.0, MAX_LEAPFROG) for arm in choice.arms]
    each = [arm.transitions * (arm.jumps + (1.0 - arm.jumps) * n) for arm, n in zip(choice.arms, leaps, strict=True)]
    return choice.chains * float(np.dot(each, choice.lengths))


def free_chains(
    rng: np.random.Generator, dynamics: Dynamics, arm: Arm, length: int, chains: int
) -> tuple[np.ndarray, float]:
    """Chains of ``arm`` on f from archived states, (length, chains, d), and gradients a draw."""
    archive, work = dynamics.archive, 0
    states = np.empty((length, chains, archive.shape[1]))
    for c, z in enumerate(archive[rng.integers(len(archive), size=chains)]):
        for t in range(length):
            path = surrogate_dynamics.run(rng, z, dynamics, arm)
            z = states[t, c] = path.z
            work += path.gradients
    return states, work / (length * chains)


def _slowest(states):
    """Largest autocorrelation time over the coordinates of ``states`` (length, chains, d).

    Length times the variance of a chain's mean, over the variance of a state. The largest of many noisy
    estimates is too large: they are drawn towards their mean first, by as much as noise explains of their
    spread (James & Stein, 1961).
    """
    length, chains, _ = states.shape
    centred = states - states.mean(axis=(0, 1))
    variance = np.square(centred).mean(axis=(0, 1)) + 1e-300
    times = length * np.square(centred.mean(axis=0)).mean(axis=0) / variance
    mean, spread = times.mean(), times.var()
    signal = max(0.0, 1.0 - 2.0 * mean**2 / (chains * max(spread, 1e-300)))
    return float(np.clip((mean + signal * (times - mean)).max(), 0.3, length))


def acceptance(worth: Worth) -> np.ndarray:
    """Acceptance probability of every arm, (arms,): its own trials, all arms', and the fit's promise."""
    accepted, trials = worth.accepted[1:], worth.trials[1:]
    pooled = accepted.sum() + PRIOR_TRIALS * worth.expected
    pooled /= trials.sum() + PRIOR_TRIALS
    return (accepted + PRIOR_TRIALS * pooled) / (trials + PRIOR_TRIALS)


def scores(worth: Worth) -> tuple[float, np.ndarray]:
    """Effective draws per unit of work of the random walk and of the arms, (arms,)."""
    accept_prob = acceptance(worth)
    arms = accept_prob / (2.0 - accept_prob) / worth.times / (1.0 + worth.work)
    arms[np.isinf(worth.times)] = 0.0
    # Half the mean square of the slowest coordinate's jump, in variances, is 1 minus its correlation c; the
    # effective draws are (1 - c) / (1 + c).
    # before its own trials count a step that a random walk's tuned scale takes
    prior = PRIOR_TRIALS * (0.2 / len(worth.spread))
    moved = 0.5 * (worth.squares.min() + prior) / (worth.trials[0] + PRIOR_TRIALS)
    return float(moved / (2.0 - min(moved, 1.0))), arms


def shares(worth: Worth) -> np.ndarray:
    """Probabilities of all kernels while tuning, (1 + arms,); the surrogate pays where the first is below 1/2."""
    walk, arms = scores(worth)
    best = max(arms.max(), 1e-12)
    share = float(np.clip(walk**2 / (walk**2 + best**2), 0.1, 0.9))
    weights = 0.05 + (arms / best) ** 6.0
    weights[np.isinf(worth.times)] = 0.0
    return np.concatenate([[share], (1.0 - share) * weights / weights.sum()])
