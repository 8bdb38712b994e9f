"""How much work an estimator is given: tuned until the log estimate's noise is what is best, and fixed from then on.

The noise of a log estimate from N particles, simulations or importance draws has a variance that falls as 1 / N, and a
pseudo-marginal chain makes most of its work where the sd is some 1.2 to 1.5 (Doucet et al., 2015, section 3.4): with
more noise it stands still on overestimates, with less it pays for precision that the test does not need. Too few cost
more than too many, and some hundred pairs of probes tell the sd to a tenth: what is aimed at is 1.25. Which N that is
nobody knows before the chain is where the posterior is, for the noise depends on the parameters.

Every pair of probes (:mod:`pymc_kameleon.samplers.noise_probe`) is an unbiased estimate r of the noise's variance in
units of the best one, TARGET; of Gaussian noise it is that variance times a chi-square of one degree of freedom. With
the k-th pair the logarithm of N moves by

    k^(-2/3) (min(r, CAP) - E[min(chi-square_1, CAP)]),

Robbins & Monro's (1951) stochastic approximation, whose root is N with r of mean one. The cap makes it robust: far from
the posterior single differences are in the thousands, and estimates zero. It also makes it blind to noise that grows
towards the tails, where too much of it keeps a chain away for longer than it runs. So N goes below what was given only
as far as the worst of the last pairs allows: not while a single r would be above one. N changes when a pair begins, by
the probe that the chain takes over, so that what it retains is an estimate made with the N that it has.

References
----------
A. Doucet, M. K. Pitt, G. Deligiannidis, R. Kohn (2015). Efficient implementation of Markov chain Monte Carlo when using
an unbiased likelihood estimator. Biometrika 102.
H. Robbins, S. Monro (1951). A stochastic approximation method. Ann. Math. Statist. 22.
"""

import math
from typing import NamedTuple

TARGET = 1.25**2  # variance of the noise
CAP = 2.0
MEAN = 0.7421917096296824  # of min(chi-square_1, CAP): P(chi-square_3 < CAP) + CAP P(chi-square_1 > CAP)


class Work(NamedTuple):
    """The work of a chain's estimators."""

    given: tuple[int, ...] = ()  # what the model gives each of them
    now: tuple[int, ...] = ()  # what each of them gets: all are raised and lowered by one factor
    log_factor: float = 0.0  # logarithm of the factor that ``now`` should have
    pairs: int = 0  # of probes that it was learned from
    spent: int = 0  # sum of the work of all evaluations in this chain


def begin(given: tuple[int, ...]) -> Work:
    """Of a chain that has not been evaluated yet."""
    return Work(given, given)


def spend(work: Work) -> Work:
    """One evaluation more."""
    return work._replace(spent=work.spent + sum(work.now))


def learn(work: Work, square: float) -> Work:
    """Learn from half the squared difference of two fresh estimates at one point, made with the work ``now``."""
    if not work.now:
        return work
    pairs = work.pairs + 1
    ratio = square / TARGET * sum(work.now) / (sum(work.given) * math.exp(work.log_factor))
    log_factor = work.log_factor + pairs ** (-2.0 / 3.0) * (min(ratio, CAP) - MEAN)
    most = math.log(100.0)  # N stays within a hundredth and a hundred times what was given
    return work._replace(pairs=pairs, log_factor=min(max(log_factor, -most), most))


def due(work: Work, worst: float) -> Work:
    """With the work that should be, where that is another than what is to a degree that matters.

    ``worst`` is the largest of the last half squared differences, in estimates made with the work ``now``.
    """
    least = min(1.0, worst / TARGET * sum(work.now) / sum(work.given))
    factor = max(math.exp(work.log_factor), least)
    now = tuple(max(1, round(n * factor)) for n in work.given)
    if abs(sum(now) - sum(work.now)) <= 0.1 * sum(work.now):  # not worth an estimate made anew
        return work
    return work._replace(now=now)


def change(before: Work, after: Work) -> float:
    """By what factor the work has grown."""
    return sum(after.now) / sum(before.now)
