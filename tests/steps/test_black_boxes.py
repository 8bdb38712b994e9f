"""Which parts of a model are black boxes, and on which coordinates each depends."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import view_op, wrap_py

from pymc_kameleon import KamiltonianStep, NoisyLogLikelihood
from pymc_kameleon.steps.factors.black_boxes import Unsplittable
from pymc_kameleon.steps.factors.split import Cut
from tests.support.hierarchies import BlackBox, curves, schools

square = BlackBox(lambda x: -0.5 * np.sum(np.square(x)))


def cut(model, **options):
    return Cut(model, model.continuous_value_vars, model.initial_point(), **options)


def coordinates(found):
    return [inputs.coordinates.tolist() for inputs in found.inputs]


@pytest.mark.parametrize(
    ("groups", "where", "added"), [(schools, [[2], [3], [4]], True), (curves, [[3, 4], [5, 6]], False)]
)
def test_a_log_likelihood_or_a_prediction_a_group(groups, where, added):
    model, box = groups()
    found = cut(model)
    assert coordinates(found) == where
    assert found.added == [added] * len(where)
    assert [b.factor for b in found.boxes] == [f"y{k}" for k in range(len(where))]
    assert box.calls == 0


def test_what_has_a_gradient_or_none_to_learn_is_no_black_box():
    with pm.Model() as model:
        x = pm.Normal("x", shape=3)
        pm.Normal("y", pt.sort(pt.clip(x, -1, 1))[0] + pt.argmax(x), 1.0, observed=0.3)
        pm.Potential("floor", pt.switch(x[0] > 0, pt.floor(x[1]), pt.linalg.det(pt.outer(x, x) + pt.eye(3))))
        pm.Potential("of constants", square(np.ones(3)))
        count = BlackBox(lambda x: np.array(int(x)), pt.lscalar)(x[0])
        pm.Potential("of integers", -1.0 * count * x[0])  # constant almost everywhere
    assert cut(model).boxes == []


def test_hierarchies_non_centred_by_hand_are_learned_in_the_arguments():
    box = BlackBox(lambda theta, size: -0.5 * np.sum(np.square(theta)) / size)
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", shape=2), pm.HalfNormal("tau")
        z = pm.Normal("z", shape=(2, 2))
        for k in range(2):
            pm.Potential(f"y{k}", box(mu + tau * z[k], pt.exp(z[k, 0])))
    found = cut(model)
    assert coordinates(found) == [[0, 1, 2, 3, 4], [0, 1, 2, 5, 6]]
    assert [i.elements.tolist() for i in found.inputs] == [[0, 1, 2]] * 2
    assert not any(i.positive for i in found.inputs)


def test_what_depends_on_what_and_is_positive_is_asked_as_far_as_priors_reach():
    box = BlackBox(lambda total, density: -0.5 * (total - 20.0) ** 2 - density**2)
    with pm.Model() as model:
        a, b, n = pm.Normal("a", 30.0, 30.0), pm.Normal("b", 0.0, 30.0), pm.Normal("n", 2.5e20, 1e20)
        pm.Potential("y", box(a + b, n / 1e20))
    found = cut(model)
    assert coordinates(found) == [[0, 1, 2]]  # to 1e20 a step of .5 is rounding
    assert found.inputs[0].elements.tolist() == [0, 1]
    assert not found.inputs[0].positive  # a + b = 30 +- 40: of steps of 5 none is below 0
    with pm.Model() as model:
        a, b, c = pm.Normal("a", 0.0, 100.0), pm.Normal("b", 0.0, 100.0), pm.Normal("c", 0.0, 1000.0)
        pm.Potential("y", box(pt.exp(a + b), 1.0))
        pm.Potential("z", box(pm.math.sigmoid(c), 1.0))
    wide = cut(model)
    assert coordinates(wide) == [[0, 1], [2]]  # where a sigmoid is not 1 to the last digit
    assert wide.inputs[0].positive  # what underflows is


def test_wide_priors_say_in_what_units_a_chain_sets_out():
    box = BlackBox(lambda slope, background: slope * np.arange(3.0) + background, pt.dvector)
    with pm.Model():
        slope, background = pm.LogNormal("slope", 2.0, 0.5), pm.Normal("background", 0.0, 5e3)
        pm.Normal("y", box(slope, background), 300.0, observed=np.array([4900.0, 4910.0, 4920.0]))
        units = KamiltonianStep().density.parts_known.units
    assert units[0] == 1.0
    assert 20.0 < units[1] < 50.0


def test_positive_arguments_are_learned_in_their_logarithms():
    box = BlackBox(lambda size: -np.square(size))
    with pm.Model() as model:
        a, b, c = pm.Normal("a"), pm.Normal("b"), pm.Normal("c")
        pm.Potential("y", box(pt.exp(a + b) + pt.exp(c)))
    (inputs,) = cut(model).inputs
    assert inputs.positive
    assert inputs.size == 1


def test_one_total_and_one_vector():
    with pm.Model() as model:
        x = pm.Normal("x", shape=4)
        pm.Potential("total", square(x))
        pm.Potential("vector", BlackBox(lambda x: -np.abs(x), pt.dvector)(x[:3]))
    found = cut(model)
    assert coordinates(found) == [[0, 1, 2, 3], [0, 1, 2]]
    assert found.added == [True, True]


def test_where_a_log_likelihood_does_more_than_add():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("squared", square(x) ** 2)
        vector = BlackBox(lambda x: -np.square(x) * np.ones(3), pt.dvector)(x + 1.0)
        pm.Potential("broadcast", vector + square(x + 2.0))
    found = cut(model)
    added = {str(b.outputs[0].type.shape) + b.factor: a for b, a in zip(found.boxes, found.added, strict=True)}
    assert added == {"()squared": False, "(None,)broadcast": True, "()broadcast": False}


TERMS = (
    lambda o: -7.0 * pt.log(o), lambda o: -0.5 * o, lambda o: -o / 2.0, lambda o: 3.0 - o,
    lambda o: pt.squeeze(-0.5 * o[None]), lambda o: pt.log(o), lambda o: pt.stack([o])[0],
    lambda o: view_op(-0.5 * view_op(o)),
)  # fmt: skip


@pytest.mark.parametrize("term", TERMS)
def test_a_log_likelihood_is_known_however_it_is_returned(term):
    """A chi-squared is no prediction: its polynomial would be believed where nobody was."""
    number = BlackBox(lambda x: np.array(1.0 + np.square(x).sum()))
    array = BlackBox(lambda x: np.array([1.0 + np.square(x).sum()]), pt.dvector)
    for box in (number, lambda x: array(x)[0]):
        with pm.Model() as model:
            x = pm.Normal("x", shape=2)
            pm.Potential("y", term(box(x)))
            pm.Potential("z", term(box(x + 1.0)))
        found = cut(model)
        assert found.added == [True, True]
        assert all(b.outputs[0].type.shape in ((), (1,)) for b in found.boxes)
    if term in TERMS[::4]:  # and what is known of it is right
        value, v = KamiltonianStep(model=model).density, np.array([0.3, -0.4])
        assert value(v) == pytest.approx(float(model.compile_logp()({"x": v})))


@pytest.mark.parametrize(
    "term",
    [
        lambda o: -0.5 * (o - 1.0) ** 2, lambda o: o * pt.log(o), lambda o: pm.math.exp(-o), lambda o: 1.0 / o,
        lambda o: o * o,
    ],
)  # fmt: skip
def test_a_prediction_stays_one(term):
    with pm.Model() as model:
        pm.Potential("y", term(square(pm.Normal("x"))))
    found = cut(model)
    assert found.added == [False]
    assert isinstance(found.boxes[0].outputs[0].owner.op, type(square))


def test_of_a_vector_the_terms_are_learned_one_by_one():
    """Their sum is one number of all unknowns, and they are of few each."""
    box = BlackBox(lambda x: np.square(x).sum(axis=1), pt.dvector)
    for term in (lambda o: -0.5 * o.sum(), lambda o: (-0.5 * o).sum(), lambda o: -0.5 * o.sum() / 3.0):
        with pm.Model() as model:
            pm.Potential("y", term(box(pm.Normal("x", shape=(4, 2)))))
        (outputs,) = (b.outputs for b in cut(model).boxes)
        assert outputs[0].type.ndim == 1
    step = KamiltonianStep(model=model)
    assert np.diff(step.density.parts_known.layout.inputs).tolist() == [2] * 4


def test_what_a_constant_makes_many_of_is_one():
    with pm.Model() as model:
        pm.Potential("y", -0.5 * square(pm.Normal("x", shape=3)) * np.ones(900) / 900.0)
    (box,) = cut(model).boxes
    assert box.outputs[0].type.ndim == 0


@pytest.mark.parametrize("declared", [["y0"], ["y0", "y1"]])
def test_what_is_declared_downstream_of_a_black_box_is_another_cut(declared):
    """A likelihood that both stood for would be known twice."""
    with pm.Model() as model:
        a = pm.Normal("a", shape=(3, 2))
        for k in range(3):
            pm.Potential(f"y{k}", -0.5 * BlackBox(lambda x: np.array(np.square(x).sum()))(a[k]))
    found = cut(model, declared=declared)
    outputs = [v for box in found.boxes for v in box.outputs]
    assert len(set(outputs)) == len(outputs)
    step, v = KamiltonianStep(model=model, expensive=declared), np.linspace(-1.0, 1.0, 6)
    value = step.density(v)
    assert step.density.by_outputs(v, step.density.outputs) == pytest.approx(value)
    assert value == pytest.approx(float(model.compile_logp()({"a": v.reshape(3, 2)})))


def test_of_an_array_all_are_learned_where_more_than_one_is_used():
    box = BlackBox(lambda x: np.array([x, 2.0 * x]), pt.dvector)
    with pm.Model() as model:
        o = box(pm.Normal("x"))
        pm.Potential("y", o[0] - o[1])
    found = cut(model)
    assert found.boxes[0].outputs[0].type.ndim == 1
    assert found.added == [False]


def test_nested_black_boxes_are_learned_in_the_unknowns():
    inner = BlackBox(lambda x: np.array(np.sum(x)))
    with pm.Model() as model:
        x = pm.Normal("x", shape=3)
        pm.Potential("y", square(inner(x[:2]) + x[2]))
    found = cut(model)
    assert sorted(coordinates(found)) == [[0, 1], [0, 1, 2]]
    assert found.inputs[1].elements is None


def test_bounded_and_improper_variables():
    with pm.Model() as model:
        p = pm.Uniform("p", 0.0, 1.0, shape=2)
        free = pm.Flat("free")
        pm.Potential("y", square(p[0]))
        pm.Potential("z", square(p[1] + free))
    found = cut(model)
    assert coordinates(found) == [[0], [1, 2]]
    assert [i.size for i in found.inputs] == [1, 1]


def test_as_op_and_its_unknown_shape():
    @wrap_py(itypes=[pt.dvector, pt.dscalar], otypes=[pt.dvector])
    def curve(x, size):
        return x * size

    with pm.Model() as model:
        x, s = pm.Normal("x", shape=3), pm.HalfNormal("s")
        pm.Normal("y", curve(x, s), s, observed=np.ones(3))
    assert coordinates(cut(model)) == [[0, 1, 2, 3]]


def test_what_is_declared_is_learned_too():
    with pm.Model() as model:
        x = pm.Normal("x", shape=3)
        slow = pt.exp(x[:2]).sum()
        slow.name = "slow"
        pm.Normal("y", slow, 1.0, observed=1.0)
    found = cut(model, declared=["slow"])
    assert coordinates(found) == [[0, 1]]
    assert found.inputs[0].elements is None
    with pytest.raises(ValueError, match="expensive names fast"):
        cut(model, declared=["fast"])


@pytest.mark.parametrize(("noisy", "variables", "why"), [(True, 2, "random numbers"), (False, 1, "other steps")])
def test_what_cannot_be_cut_says_why(noisy, variables, why):
    with pm.Model() as model:
        x, _ = pm.Normal("x"), pm.Normal("w")
        if noisy:
            pm.Potential("y", NoisyLogLikelihood(lambda rng, x: -(x**2) + 0.1 * rng.normal())(x))
    with pytest.raises(Unsplittable, match=why):
        Cut(model, model.continuous_value_vars[:variables], model.initial_point())


def test_a_prior_whose_scale_a_black_box_says_stays_as_it_is():
    scale = BlackBox(lambda x: np.exp(x))
    with pm.Model() as model:
        a = pm.Normal("a")
        b = pm.Normal("b", 0.0, pt.exp(a))
        pm.Normal("c", 0.0, scale(a))
        pm.Potential("y", square(b))
    moved = cut(model).coordinates.priors
    assert [v.name for v in moved] == ["b"]
