"""Properties that hold whatever is given: models of any shapes, types and transforms, options of any value, any state.

Hypothesis looks for the counterexample; the examples are the same in every run (``derandomize``).
"""

import math
import pickle

import numpy as np
import pymc as pm
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pymc_kameleon.steps import CMAStep, GaussianAdaptationStep, saved_state
from tests import step_tester as tester
from tests.public.conftest import Accepted
from tests.public.test_bad_input import POINT, every, model
from tests.public.test_bad_input import build as with_option
from tests.step_tester import NO_BLAS, assert_same_draws, begin, drive

pytestmark = [
    NO_BLAS,
    # 9e307 + 9e307 and the like is what is asked for
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
]
QUICK = {"compile_kwargs": {"mode": "FAST_COMPILE"}}


def examples(n):
    return settings(
        max_examples=n, derandomize=True, deadline=None, database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture],
    )  # fmt: skip


# --- models -------------------------------------------------------------------------------------------

PRIORS = {
    "normal": lambda name, **kw: pm.Normal(name, 0.0, 2.0, **kw),
    "half": lambda name, **kw: pm.HalfNormal(name, 1.0, **kw),
    "uniform": lambda name, **kw: pm.Uniform(name, -3.0, -1.0, **kw),
    "beta": lambda name, **kw: pm.Beta(name, 2.0, 3.0, **kw),
    "gamma": lambda name, **kw: pm.Gamma(name, 2.0, 1.0, **kw),
    "student": lambda name, **kw: pm.StudentT(name, 5.0, **kw),
    "circle": lambda name, **kw: pm.VonMises(name, 0.0, 1.0, **kw),
    "bounded above": lambda name, **kw: pm.TruncatedNormal(name, 0.0, 1.0, upper=0.5, **kw),
    "float32": lambda name, **kw: pm.Normal(name, 0.0, 1.0, dtype="float32", **kw),
}
VECTORS = {
    "simplex": lambda name: pm.Dirichlet(name, np.ones(3)),
    "simplices": lambda name: pm.Dirichlet(name, np.ones((2, 3))),
    "ordered": lambda name: pm.Normal(
        name, 0.0, 1.0, shape=3, transform=pm.distributions.transforms.ordered, initval=np.arange(3.0)
    ),
    "zero sum": lambda name: pm.ZeroSumNormal(name, shape=3),
    "correlated": lambda name: pm.MvNormal(name, np.zeros(2), np.array([[1.0, 0.9], [0.9, 1.0]])),
}  # fmt: skip
SHAPES = [(), (1,), (3,), (2, 2), (0,), (1, 1, 2)]
variable = st.one_of(
    st.tuples(st.sampled_from(list(PRIORS)), st.sampled_from(SHAPES)),
    st.tuples(st.sampled_from(list(VECTORS)), st.none()),
)
STEPS = ["adaptive_metropolis", "kameleon", "cma", "gaussian_mixture", "kamiltonian"]


def build(chosen):
    with pm.Model() as made:
        for i, (kind, shape) in enumerate(chosen):
            if shape is None:
                VECTORS[kind](f"v{i}")
            else:
                PRIORS[kind](f"v{i}", shape=shape)
    return made


models_and_steps = given(chosen=st.lists(variable, min_size=1, max_size=3), name=st.sampled_from(STEPS))


@examples(3)
@models_and_steps
def test_any_model_is_sampled_in_its_own_shapes_and_types(chosen, name):
    sampled(chosen, name)


@pytest.mark.slow
@examples(80)
@models_and_steps
def test_many_models_are(chosen, name):
    sampled(chosen, name)


def sampled(chosen, name):
    """Points are as the model's in names, order, shapes and types, the log density its own; a copied state goes on."""
    made = build(chosen)
    start = made.initial_point()
    if sum(v.size for v in start.values()) == 0:
        with pytest.raises(ValueError, match="found nothing to sample"):
            tester.make(tester.CASES[name], made, **QUICK)
        return
    step = begin(tester.make(tester.CASES[name], made, **QUICK), 1)
    points, stats = drive(step, start, draws=15, tune=30)
    log_density = made.compile_logp(mode="FAST_COMPILE")
    for point, row in list(zip(points, stats, strict=True))[::5]:
        assert list(point) == list(start)
        for variable, value in start.items():
            assert point[variable].shape == value.shape
            assert point[variable].dtype == value.dtype
            assert np.isfinite(point[variable]).all()
        rounding = 1e-4 if any(v.dtype == np.float32 for v in start.values()) else 1e-9
        assert math.isclose(row["model_logp"], float(log_density(point)), rel_tol=rounding, abs_tol=rounding)
        assert 0.0 <= row["accept"] <= 1.0
    state = step.sampling_state
    on = drive(step, points[-1], 10)
    step.sampling_state = state
    assert_same_draws(on, drive(step, points[-1], 10))


# --- options ------------------------------------------------------------------------------------------

anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.binary(max_size=3),
    st.complex_numbers(), st.lists(st.floats(), max_size=3), st.tuples(st.integers(), st.integers()),
    st.tuples(st.floats(), st.floats()), st.sampled_from([np.float32(0.5), np.int64(3), np.bool_(True), object, {}]),
    hnp.arrays(st.sampled_from([np.float64, np.float32, np.int64]), hnp.array_shapes(max_dims=3, max_side=4)),
)  # fmt: skip


@pytest.mark.slow
@every
def test_an_option_is_with_many_values(step, chosen, name, accepting):
    refused_or_taken(step, chosen, name, 150)


def refused_or_taken(step, chosen, name, n):
    """Nothing else may come out of the constructor: no error of NumPy's, no silence that ends in the first draw."""

    @examples(n)
    @given(value=anything)
    def try_one(value):
        with pytest.raises((Accepted, ValueError, TypeError)) as seen:
            with_option(step, chosen, {name: value})
        assert seen.type is Accepted or name in str(seen.value), (value, str(seen.value))

    try_one()


@pytest.mark.slow
def test_the_test_above_would_notice(accepting, monkeypatch):
    """An option that nobody checks: arithmetic fails, without its name."""
    monkeypatch.setattr("pymc_kameleon.samplers.seam.check_types", lambda *_: None)
    with pytest.raises((AssertionError, ExceptionGroup)):
        refused_or_taken(CMAStep, {}, "rate_factor", 25)


def test_scales_too_far_apart_are_refused():
    """Found by the test above, given more examples: the smallest one's square was zero, its logarithm -inf."""
    for step in (CMAStep, GaussianAdaptationStep):
        with pytest.raises(ValueError, match="initial_scale must be 3 numbers within 1e\\+120"):
            step(model=model(), initial_point=POINT, initial_scale=[4e5, 4e5, 8e-238])


# --- records ------------------------------------------------------------------------------------------

numbers = hnp.arrays(
    st.sampled_from(["f8", "f4", "i8", "i4", "u1", "?", "U3", "c16"]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), numbers, numbers.map(np.asfortranarray),
    numbers.filter(lambda a: a.size).map(lambda a: a.ravel()[0]),
)  # fmt: skip
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), inner, max_size=3),
    ),
    max_leaves=8,
)


@examples(150)
@given(tree=trees)
def test_whatever_a_state_holds_comes_back_from_a_file(tree):
    assert same(saved_state._unpacked(saved_state._packed(tree), "file"), tree)


def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (np.ndarray, np.generic)):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float) and math.isnan(a):
        return math.isnan(b)  # a float's NaN is text in the file, without its payload
    return pickle.dumps(a) == pickle.dumps(b)  # -0.0 apart from 0.0
