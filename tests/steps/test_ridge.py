"""A dose response of four unknowns, whose largest dose does not say where it ends: a ridge to an edge.

``python -m tests.steps.test_ridge`` prints sds of ``ed50`` by seeds, beside the right one, as
``learning._beyond`` tells them.
"""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import wrap_py

import pymc_kameleon as pk

DOSES, SD = np.array([0.0, 10.0, 25.0, 50.0, 100.0]), 2.0 / np.sqrt(8.0)
SEEN = np.random.default_rng(14).normal(2.0 + 6.0 * DOSES**1.5 / (DOSES**1.5 + 40.0**1.5), SD)


def share(ed50, hill):
    """Of the largest response, (..., doses)."""
    return 1.0 / (1.0 + (ed50 / np.maximum(DOSES, 1e-12)) ** hill)


@wrap_py(itypes=[pt.dscalar] * 4, otypes=[pt.dvector])
def response(base, largest, ed50, hill):
    return base + largest * share(ed50, hill)


def moments_of_ed50():
    """(mean, sd) by a grid; ``base`` and ``largest`` are normal given the others, and integrated out."""
    ed50 = 0.1 + 299.9 * (np.arange(900) + 0.5) / 900
    hill = 0.3 + 9.7 * (np.arange(500) + 0.5) / 500
    f = share(ed50[:, None, None], hill[None, :, None])
    known = np.stack([np.ones_like(f), f], axis=-1) / SD  # (900, 500, doses, 2)
    precision = np.einsum("...ji,...jk->...ik", known, known) + np.eye(2) / 100.0
    b = np.einsum("...ji,j->...i", known, SEEN / SD)
    solved = np.linalg.solve(precision, b[..., None])[..., 0]
    log_density = 0.5 * (b * solved).sum(axis=-1) - 0.5 * np.linalg.slogdet(precision)[1]
    weights = np.exp(log_density - log_density.max()).sum(axis=1)
    mean = np.average(ed50, weights=weights)
    return mean, np.sqrt(np.average(np.square(ed50 - mean), weights=weights))


def run(seed):
    """Draws of ``ed50``, (chains, draws)."""
    with pm.Model():
        unknowns = (pm.Normal("base", 0.0, 10.0), pm.Normal("largest", 0.0, 10.0))
        unknowns += (pm.Uniform("ed50", 0.1, 300.0), pm.Uniform("hill", 0.3, 10.0))
        pm.Normal("seen", response(*unknowns), SD, observed=SEEN)
        options = {"cores": 1, "random_seed": seed, "progressbar": False}
        idata = pm.sample(1000, tune=1000, chains=4, step=pk.KamiltonianStep(), **options)
    return idata["posterior"]["ed50"].values


@pytest.mark.slow
def test_the_mean_along_a_ridge_is_right():
    """By what eight runs differ: one run may see too little of its end, with an R-hat below 1.01."""
    mean, sd = moments_of_ed50()
    assert (mean, sd) == pytest.approx((116.5, 51.4), rel=0.01)  # by a finer grid, and NUTS
    means = np.array([run(seed).mean() for seed in range(1, 9)])
    assert abs(means.mean() - mean) < 4.5 * means.std(ddof=1) / np.sqrt(8)
    assert means.std(ddof=1) < 0.1 * sd  # three times that of independent draws as many as are effective, some 900


if __name__ == "__main__":
    mean, sd = moments_of_ed50()
    for seed in range(1, 9):
        draws = run(seed)
        off, ratio, rhat = (draws.mean() - mean) / sd, draws.std() / sd, float(az.rhat({"x": draws})["x"])
        print(f"seed {seed}: mean {off:+.3f} sds off, sd {ratio:.2f} of the right one, R-hat {rhat:.3f}")
