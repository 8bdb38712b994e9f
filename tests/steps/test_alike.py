"""Terms that are alike, computed as one: their sum and its gradient are those of the terms one by one."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import clone_replace

from pymc_kameleon.steps.factors.alike import consecutive, in_groups
from pymc_kameleon.steps.factors.factored_density import FactoredDensity
from pymc_kameleon.steps.factors.split import Cut
from tests.support.hierarchies import BlackBox

QUICK = {"mode": "FAST_COMPILE"}


def doses(lengths=(4, 4, 4), rows=None, observed=pm.Normal, twice=()):
    """A curve a patient, each by itself; some are given the doubled parameters."""
    rng, rows = np.random.default_rng(3), range(len(lengths)) if rows is None else rows
    with pm.Model() as model:
        m, s = pm.Normal("m", 0, 1, shape=2), pm.HalfNormal("s", 1, shape=2)
        z, sigma = pm.Normal("z", shape=(max(rows) + 1, 2)), pm.HalfNormal("sigma", 1)
        for g, (n, row) in enumerate(zip(lengths, rows, strict=True)):
            curve = BlackBox(
                lambda p, n=n: np.exp(p[0] - np.exp(p[1]) * np.arange(n)), pt.TensorType("float64", shape=(n,))
            )
            theta = m + s * z[row]
            observed(f"y{g}", curve(2.0 * theta if g in twice else theta), sigma, observed=rng.standard_normal(n))
    return model


def cut_of(model, **options):
    return Cut(model, list(model.value_vars), model.initial_point(), **options)


def values(graphs, inputs, seed=1):
    """Value and gradient of the sum of ``graphs`` at random ``inputs``."""
    rng = np.random.default_rng(seed)
    total = pt.add(*[g.sum() for g in graphs])
    gradients = pytensor.grad(total, inputs, disconnected_inputs="ignore")
    function = pytensor.function(inputs, [total, *gradients], mode="FAST_COMPILE", on_unused_input="ignore")
    return function(*[0.5 + rng.random(tuple(n or 4 for n in v.type.shape)) for v in inputs])


def compared(model):
    """(numbers of the members of each group, largest difference) of a model's terms."""
    cut = cut_of(model)
    boxes = [v for box in cut.boxes for v in box.outputs]
    groups = in_groups(list(cut.terms.values()), boxes, pt.stack)
    inputs = [v.type() for v in boxes]
    free = [*inputs, *model.value_vars]
    replaced = dict(zip(boxes, inputs, strict=True))
    one_by_one = values(clone_replace(list(cut.terms.values()), replaced), free)
    together = values(clone_replace([g for _, g in groups], replaced), free)
    worst = max(np.abs(np.subtract(a, b)).max(initial=0) for a, b in zip(one_by_one, together, strict=True))
    return sorted(len(members) for members, _ in groups), worst


@pytest.mark.parametrize(
    ("model", "together"),
    [
        (lambda: doses(lengths=(4, 3, 4, 3, 4)), 3),
        (lambda: doses(observed=lambda name, mu, sigma, **of: pm.StudentT(name, 4, mu=mu, sigma=sigma, **of)), 3),
        (lambda: doses(observed=lambda name, mu, sigma, **of: pm.MvNormal(name, mu, np.eye(4), **of)), 1),
    ],
)  # fmt: skip
def test_the_sum_and_its_gradient(model, together):
    sizes, worst = compared(model())
    assert worst < 1e-12
    assert sizes[-1] >= together


def test_terms_that_differ_stay_apart():
    rng = np.random.default_rng(1)
    x = pt.vector("x", shape=(3,))
    data = rng.standard_normal((4, 3))
    graphs = [((x - d) ** 2).sum() for d in data[:2]] + [(abs(x - d)).sum() for d in data[2:]] + [x.sum(), x.sum()]
    groups = in_groups(graphs, (), pt.stack)
    assert [members for members, _ in groups] == [[0, 1], [2, 3], [4, 5]]
    at = rng.standard_normal(3)
    for members, graph in groups:
        one_by_one = [graphs[i].eval({x: at}, **QUICK) for i in members]
        assert np.allclose(graph.eval({x: at}, **QUICK), one_by_one, atol=1e-13)


def test_rows_in_any_order_and_one_row_twice():
    x = pt.matrix("x", shape=(4, 2))
    rows, at = [3, 1, 1, 0], np.arange(8.0).reshape(4, 2)
    ((members, graph),) = in_groups([pt.exp(x[i]) for i in rows], (), pt.stack)
    assert members == [0, 1, 2, 3]
    assert graph.eval({x: at}, **QUICK) == pytest.approx(np.exp(at[rows]))


def test_a_slice_for_what_follows():
    assert consecutive(np.array([2, 3, 4])) == slice(2, 5)
    assert list(consecutive(np.array([2, 4, 3]))) == [2, 4, 3]
    assert list(consecutive(np.array([-1, 0]))) == [-1, 0]


def test_in_the_order_of_the_factors():
    """Inputs go to their own black box, and outputs to their own term: the known part is the model's log density."""
    rows, twice = (2, 0, 1, 1, 3), (1, 3)
    model = doses(lengths=(4, 3, 4, 3, 4), rows=rows, twice=twice)
    density = FactoredDensity(cut_of(model), model, model.initial_point(), QUICK)
    v, nowhere = np.random.default_rng(2).standard_normal(density.dim), np.zeros(density.dim)
    point = dict(zip(["m", "s", "z", "sigma"], np.split(v, [2, 4, 4 + 2 * (max(rows) + 1)]), strict=True))
    parts = density.parts_known
    w, *_ = parts.places(v, nowhere)
    z = point["z"].reshape(-1, 2)
    assert [f.box for f in parts.parts] == [0, 1, 2, 3, 4]
    theta = [(1 + (g in twice)) * (point["m"] + np.exp(point["s"]) * z[row]) for g, row in enumerate(rows)]
    assert w == pytest.approx(np.concatenate(theta), abs=1e-13)
    expected = density(v)
    assert density.by_outputs(v, density.outputs) == pytest.approx(expected, abs=1e-10)


def test_what_is_compiled_does_not_grow_with_the_groups():
    """Seconds to begin with a solver a patient, and microseconds a gradient, hang on it."""
    sizes = []
    for n in (2, 4):
        model = doses(lengths=[4] * n, rows=range(n))
        known = FactoredDensity(cut_of(model), model, model.initial_point(), QUICK).parts_known._known
        sizes.append(len(known.maker.fgraph.apply_nodes))
    assert sizes[1] <= sizes[0] + 2


def test_more_terms_than_numpy_has_operands(caplog):
    n = 33
    model = doses(lengths=[2] * n, rows=range(n))
    cut = cut_of(model, noncentred=False)
    found = FactoredDensity(cut, model, model.initial_point(), QUICK)
    assert not caplog.records  # rewrites that failed
    one_by_one = pytensor.function(model.value_vars, [t.sum() for t in cut.terms.values()], mode="FAST_COMPILE")
    point = model.initial_point()
    assert found(found.ravel(point)) == pytest.approx(sum(one_by_one(**point)), rel=1e-10)
