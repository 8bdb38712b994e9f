"""PyMC's protocol of known distributions, for every step: normal and LKJ.

``KnownMean``, ``KnownVariance`` and ``KnownCDF`` of PyMC's own tests, which are not shipped with it, re-implemented:
thinned draws of whole chains from cold against exact distribution functions by Kolmogorov and Smirnov. Thinned by what
ArviZ says of their effective number. State round trip and tuning reset of the protocol: test_step_contract.py.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytest
from scipy import stats

from benchmarks.basics import bulk_ess
from tests.step_tester import NO_BLAS, every_step, make, run, values

pytestmark = [NO_BLAS, pytest.mark.slow]  # test_step_contract.py has moments that are fast
# SHORT for KamiltonianStep, which needs no thinning to speak of. With 6,000 two steps had too little of the neck of
# lkj, where both standard deviations are small (p = 4e-6, and 144 effective draws); with 100,000 p = .43 and .57.
CHAINS, TUNE, DRAWS, SHORT = (4, 1000, 25_000, 2000)
P = 7e-6  # that of |z| > 4.5


class Known(NamedTuple):
    """A model, what is looked at in its points, and the exact distribution of each of them."""

    model: pm.Model
    look: Callable  # points -> (n, k)
    exact: list


@cache
def normal():
    with pm.Model() as model:
        pm.Normal("x", mu=[2.0, -1.0, 0.0], sigma=[math.sqrt(3.0), 0.1, 1.0])
    exact = [stats.norm(2.0, math.sqrt(3.0)), stats.norm(-1.0, 0.1), stats.norm(0.0, 1.0)]
    return Known(model, lambda points: values(points, "x"), exact)


@cache
def lkj():
    """Cov = L L^T with half-normal standard deviations, and a correlation r with (r + 1) / 2 ~ Beta(2, 2)."""
    with pm.Model() as model:
        pm.LKJCholeskyCov("cov", n=2, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0, shape=2), compute_corr=False)
    [value] = model.value_vars

    def look(points):
        first, below, last = values(points, value.name).T  # the lower triangle, logarithms on the diagonal
        first, last = np.exp(first), np.exp(last)
        second = np.hypot(below, last)
        return np.column_stack([first, second, below / second])

    return Known(model, look, [stats.halfnorm(), stats.halfnorm(), stats.beta(2.0, 2.0, loc=-1.0, scale=2.0)])


def smallest_p(draws, exact):
    """Of the Kolmogorov-Smirnov tests of every column, thinned until what is left is independent."""
    every = math.ceil(draws.shape[0] * draws.shape[1] / bulk_ess(draws).min())
    thinned = draws[:, ::every].reshape(-1, draws.shape[-1])
    assert len(thinned) > 200
    return min(stats.kstest(thinned[:, k], exact[k].cdf).pvalue for k in range(len(exact)))


@every_step
@pytest.mark.parametrize("name", [normal, lkj], ids=lambda f: f.__name__)
def test_draws_have_the_known_distribution(case, name):
    model, look, exact = name()
    step, length = make(case, model), SHORT if case.skips else DRAWS
    draws = np.array([look(run(step, length, TUNE, seed)[0][TUNE:]) for seed in range(CHAINS)])
    assert smallest_p(draws, exact) > P
    half = 0.5 * np.array([d.std() for d in exact])
    assert smallest_p(draws + half, exact) < P / 100  # power: half a standard deviation is noticed
