"""Moves with a local covariance are exact: exact draws in, exact draws out, and the mistakes one can make are seen."""

import numpy as np
import pytest

from pymc_kameleon.numerics.normal_steps import log_step_density
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kameleon.local_covariance import _least
from pymc_kameleon.samplers.kameleon.pca import PCAKameleon, log_mixture_density
from tests.support.chains import Dropped, change
from tests.support.local_moves import learned, with_scales
from tests.support.targets import Skewed

FULL = {"n_history": 200, "gamma": 0.1}
PCA = {"gamma": 0.05, "lengthscale": 0.6, "n_history": 200, "n_directions": 8}
FAST = {"n_features": 60, "lengthscale": 0.6, "scale": 1.2, "gamma": 0.1}
# a mediocre proposal: the ratio matters
STRONG = {**FAST, "normalization": "none", "scale": 10.0, "gamma": 0.05, "mean_shift": False}
CASES = {
    "local": (Kameleon, {**FULL, "normalization": "local", "scale": 1.6, "lengthscale": 0.4}),
    "none": (Kameleon, {**FULL, "normalization": "none", "coordinates": "raw", "scale": 0.3, "lengthscale": 1.0}),
    "trace": (Kameleon, {**FULL, "normalization": "trace", "scale": 0.7, "lengthscale": 0.7}),
    "matern": (
        Kameleon, {**FULL, "normalization": "none", "kernel": "matern52", "scale": 0.2, "lengthscale": 1.0}
    ),
    "mixed": (Kameleon, {**FULL, "normalization": "local", "scale": 1.2, "lengthscale": 0.4, "global_share": 0.5}),
    "PCA, trace": (PCAKameleon, {**PCA, "normalization": "trace", "scale": 1.0}),
    "PCA, none": (
        PCAKameleon, {**PCA, "normalization": "none", "coordinates": "raw", "lengthscale": 1.0, "scale": 1.5}
    ),
    "PCA, matern": (PCAKameleon, {**PCA, "normalization": "none", "kernel": "matern52", "scale": 0.3}),
    "PCA, mixed": (PCAKameleon, {**PCA, "normalization": "trace", "scale": 1.0, "global_share": 0.5}),
    "fast, sincos": (FastKameleon, {**STRONG, "embedding": "sincos"}),
    "fast, cos": (FastKameleon, {**STRONG, "embedding": "cos"}),
    "fast, trace": (FastKameleon, {**FAST, "embedding": "sincos", "normalization": "trace"}),
    "fast, shift": (FastKameleon, {**FAST, "embedding": "cos", "lengthscale": 2.0, "gamma": 0.3, "scale": 0.5}),
    "fast, mixed": (FastKameleon, {**FAST, "embedding": "cos", "normalization": "trace", "global_share": 0.5}),
}  # fmt: skip


def frozen(case):
    kind, options = CASES[case]
    rng = np.random.default_rng(5)
    state = learned(kind, Skewed.draw(rng, 200), freeze=False, **options)
    return (with_scales(state, rng) if kind is PCAKameleon else state).freeze()


def moves_of(case, n, control=None):
    return change(frozen(case), Skewed, n, control=control)


IN_THE_FAST_SUITE = ("none", "local", "PCA, trace")  # the others run the same lines


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=[] if c in IN_THE_FAST_SUITE else pytest.mark.slow) for c in CASES]
)
def test_invariance(case):
    assert moves_of(case, 9_000 if case.startswith("PCA") else 12_000) < 4.5  # as many as the controls take


def density(state, there, delta):
    """Of the step ``delta`` in the kernel's coordinates, with what a point brings along."""
    if isinstance(state.sampler, PCAKameleon):
        return log_mixture_density(delta, there, state.model.weights, state.model.log_scales, state.sampler.gamma)
    return log_step_density(delta, there, state.sampler.gamma, np.exp(state.log_scale))


class Previous:
    """Negative control, as published: the reverse density with what belongs to the *previous* accepted point."""

    @staticmethod
    def start(state, x, log_density):
        state = state.start(x, log_density)
        return state._replace(walk=state.covariance)  # a place to remember it in

    @staticmethod
    def propose(rng, x, state):
        proposal = state.propose(rng, x)
        delta = np.linalg.solve(state.factor, proposal.position - x)
        reverse, forward = (density(state, c, delta) for c in (state.walk, state.covariance))
        return proposal._replace(log_q_ratio=reverse - forward)

    @staticmethod
    def keep(state, outcome):
        return state.keep(outcome)._replace(walk=state.covariance)


class OneSided:
    """Negative control: the mixture summed out on the way back only; the density of the component drawn forwards."""

    @staticmethod
    def propose(rng, x, state):
        proposal = state.propose(rng, x)
        there, j = proposal.carry
        delta = np.linalg.solve(state.factor, proposal.position - x)
        own, log_scale = state.covariance[j : j + 1], state.model.log_scales[j : j + 1]
        forward = log_mixture_density(delta, own, np.ones(1), log_scale, state.sampler.gamma)
        return proposal._replace(log_q_ratio=density(state, there, delta) - forward)


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("case", "control", "n"),
    [
        ("none", Dropped, 12_000), slow("local", Previous, 12_000),
        ("PCA, none", Dropped, 9_000), slow("PCA, trace", OneSided, 20_000), slow("PCA, trace", Previous, 9_000),
        slow("fast, cos", Dropped, 20_000), slow("fast, sincos", Previous, 20_000),
    ],
)  # fmt: skip
def test_a_wrong_ratio_is_noticed(case, control, n):
    assert moves_of(case, n, control) > 10


def test_the_nearest_point_is_found_wherever_it_is():
    for n in range(1, 10):
        for k in range(n):
            assert _least(np.where(np.arange(n) == k, -1.0, 2.0)) == -1.0
