"""Many points in one call: the same log densities as one by one, and what is refused."""

import pickle

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

import pymc_kameleon as pk
from pymc_kameleon.sampling import workers
from pymc_kameleon.steps.batched import batched_log_density
from tests.step_tester import Estimate, noisy_model

TIMES = np.linspace(0.0, 4.0, 9)
SEEN = 2.0 * np.exp(-0.7 * TIMES) + 0.1 * np.random.default_rng(0).standard_normal(9)
sizes: list = []


def decay(amplitude, rate):
    sizes.append(len(rate))
    return amplitude[:, None] * np.exp(-rate[:, None] * TIMES)


def weighted(weights, shift):
    return weights.sum(axis=1) * shift, weights * shift[:, None]


def decay_model(fn=decay):
    with pm.Model() as model:
        amplitude = pm.HalfNormal("amplitude", 3.0)
        rate = pm.Gamma("rate", 2.0, 2.0)
        sd = pm.HalfNormal("sd", 0.5)
        mean = pk.BatchedBlackBox(fn, "(),()->(t)")(amplitude, rate)
        pm.Normal("seen", mean, sd, observed=SEEN)
    return model


def many_kinds():
    x = np.random.default_rng(1).standard_normal((20, 3))
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(3))
        slope = pm.Normal("slope", 0.0, [1.0, 2.0, 3.0])
        cut = pm.Normal("cut", [-1.0, 1.0], 2.0, transform=pm.distributions.transforms.ordered)
        centre = pm.Uniform("centre", -3.0, 3.0)
        a, b = pk.BatchedBlackBox(weighted, "(k),()->(),(k)")(weights, centre)
        pm.Potential("outside", -0.5 * (a - 1.0) ** 2 - (b**2).sum())
        pm.OrderedLogistic("y", (x * slope).sum(axis=1), cut, observed=np.arange(20) % 3)
    return model


@pytest.mark.parametrize("make", [decay_model, pytest.param(many_kinds, marks=pytest.mark.slow)])
def test_a_batch_has_the_log_densities_of_its_points(make):
    model = make()
    plain = {"mode": "FAST_COMPILE"}  # it is the graph that counts
    step = pk.KamiltonianStep(model=model, learn="all", compile_kwargs=plain)
    points = np.random.default_rng(2).standard_normal((7, step.density.dim))
    batched = batched_log_density(model, step.vars, model.initial_point(), plain)
    alone = [step.density(x) for x in points]
    assert np.isfinite(alone).all()
    np.testing.assert_allclose(batched(points), alone, rtol=1e-10)


def test_a_black_box_is_called_once_for_all():
    op = pk.BatchedBlackBox(decay, "(),()->(t)")
    a, b = pt.vector("a"), pt.scalar("b")
    sizes.clear()
    found = op(a, b).eval({a: np.array([1.0, 2.0]), b: 0.5}, mode="FAST_COMPILE")  # what is not batched is repeated
    np.testing.assert_allclose(found, np.outer([1.0, 2.0], np.exp(-0.5 * TIMES)))
    assert sizes == [2]
    again = pickle.loads(pickle.dumps(op))
    assert again == op
    assert hash(again) == hash(op)


def test_sampling_evaluates_a_round_at_a_time():
    sizes.clear()
    model = decay_model()
    idata = pk.sample(  # of the whole; of black boxes it is tests/public/test_sample_black_boxes.py
        max_evaluations=400, chains=16, model=model, step=pk.KamiltonianStep(model=model, learn="all"),
        executor="vectorized", random_seed=1, progressbar=False,
    )  # fmt: skip
    assert sizes.count(16) >= 10  # the draws
    evaluations = idata["posterior"].attrs["evaluations"]
    # beside the points: one compared by itself, and PyMC's own calls while it prepares
    assert evaluations <= sum(sizes) < evaluations + 30
    rate = idata["posterior"]["rate"]
    assert abs(rate.mean() - 0.7) < 4.5 * rate.std()
    assert 0.01 < rate.std() < 0.2


@pytest.mark.parametrize("signature", ["", "()", "(),->()", "()->", "(->)", 3])
def test_a_signature_is_read_or_refused(signature):
    with pytest.raises(ValueError, match="signature must look like"):
        pk.BatchedBlackBox(decay, signature)


def test_arguments_and_results_have_to_fit():
    op = pk.BatchedBlackBox(decay, "(),()->(t)")
    with pytest.raises(TypeError, match="have \\[2, 0\\] axes"):
        op(pt.matrix(), 1.0)
    with pytest.raises(TypeError, match="the arguments have \\[0\\] axes"):
        op(1.0)
    wrong = pk.BatchedBlackBox(lambda x: x.sum(), "()->()")
    x = pt.vector("x")
    with pytest.raises(ValueError, match="wants a first axis of 2"):
        wrong(x).eval({x: np.ones(2)}, mode="FAST_COMPILE")
    with pytest.raises(TypeError, match="callable"):
        pk.BatchedBlackBox(3, "()->()")


def other_for_a_batch(amplitude, rate):
    return decay(amplitude, np.full_like(rate, rate.mean()))


def test_a_black_box_that_mixes_its_points_is_found_out():
    with pytest.raises(ValueError, match="something else for a batch"):
        pk.sample(
            max_evaluations=600, model=decay_model(other_for_a_batch), executor="vectorized",
            random_seed=1, progressbar=False,
        )  # fmt: skip


class Failing(Op):
    """Raises where x > 0.5."""

    def make_node(self, x):
        x = pt.as_tensor_variable(x)
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, output_storage):
        if inputs[0] > 0.5:
            raise FloatingPointError("step size underflow")
        output_storage[0][0] = -0.5 * inputs[0] ** 2


def test_an_exception_names_its_point():
    with pm.Model() as model:
        pm.Potential("failing", Failing()(pm.Flat("x")))
    density = pk.KamiltonianStep(model=model, learn="all").density
    evaluate = workers.Vectorized(density, batched_log_density(model, model.value_vars, model.initial_point()))
    points = [np.array([0.1]), np.array([0.2]), np.array([0.7])]
    assert evaluate(points[:2], 0) == [density(x) for x in points[:2]]
    with pytest.raises(workers.EvaluationError) as caught:
        evaluate(points, 2)
    assert caught.value.point == [0.7]


def test_noise_and_unknown_words_are_refused():
    noisy = noisy_model(Estimate(0.1))
    with pytest.raises(ValueError, match="without noise"):
        pk.sample(model=noisy, executor="vectorized", progressbar=False)
    with pytest.raises(ValueError, match="got 'threads'"):
        pk.sample(model=decay_model(), executor="threads", progressbar=False)
