"""Six real models against other packages: what the samplers are told of them is the models'."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

from benchmarks.hierarchical import models as hierarchical
from benchmarks.peers import real, reference, samplers
from benchmarks.peers.adapters import Task, sequential
from benchmarks.peers.counting import Counted
from benchmarks.peers.targets import problem


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n == "SEIR" else pytest.mark.slow) for n in real.MODELS]
)
def test_the_quantiles_are_the_models_prior(name):
    """What nested sampling is told of a prior is the model's: means and sds of both, in standard errors."""
    n, target = 2000, problem(name)
    x = np.array([target.from_cube(u) for u in np.random.default_rng(1).random((n, target.dim))])
    model = target.posterior.model
    with model:
        drawn = pm.draw(model.free_RVs, draws=n, random_seed=2)
    columns = []
    for rv, values in zip(model.free_RVs, drawn, strict=True):
        transform = model.rvs_to_transforms[rv]
        if transform is not None:
            values = transform.forward(values, *rv.owner.inputs).eval()
        columns.append(np.reshape(values, (n, -1)))
    oracle = np.concatenate(columns, axis=1)

    def worst(mine):
        """Ranks have moments whatever the tails."""
        ranks = stats.rankdata(np.concatenate([mine, oracle]), axis=0) / (2 * n) - 0.5
        mean = np.abs(ranks[:n].mean(0) - ranks[n:].mean(0)) / np.sqrt(2 / n / 12)
        spread = np.abs((ranks[:n] ** 2).mean(0) - (ranks[n:] ** 2).mean(0)) / np.sqrt(2 / n / 180)
        return max(mean.max(), spread.max())

    assert worst(x) < 4.5
    assert worst(x + 0.2 * x.std(0)) > 4.5  # the control
    assert worst(x.mean(0) + 1.3 * (x - x.mean(0))) > 4.5


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n, m in real.MODELS.items() if m.noisy])
def test_the_estimate_is_the_models(name):
    """The mean of the estimates at one point: by the function that all evaluate, and by the model itself."""
    target, n = problem(name), 400
    x = reference.moments(name)[0]
    mine = target.log_density(np.random.default_rng(3))
    theirs = target.posterior.log_density
    logs = np.array([[mine(x) for _ in range(n)], [theirs(x) for _ in range(n)]])
    values = np.exp(logs - logs.max())
    z = np.diff(values.mean(1))[0] / np.sqrt((values.var(1) / n).sum())
    assert abs(z) < 4.5
    away = np.exp(np.array([mine(x + 0.5) for _ in range(n)]) - logs.max())  # the control
    assert abs(away.mean() - values[1].mean()) > 4.5 * np.sqrt((values[1].var() + away.var()) / n)


def test_the_orbit_given_its_period_is_normal():
    """The marginal likelihood against a normal density of the data, up to one constant."""
    days, v = real.velocities()
    periods, log_jitters = np.log([1.37, 3.7, 9.0]), (-2.0, 1.0)
    sds = np.array([real.AMPLITUDE_SD, real.AMPLITUDE_SD, real.OFFSET_SD])
    differences = []
    for log_jitter in log_jitters:
        found = reference.given(periods, log_jitter)[0]
        for period, value in zip(np.exp(periods), found, strict=True):
            phase = 2 * np.pi * days / period
            design = np.column_stack([np.cos(phase), np.sin(phase), np.ones(len(days))]) * sds
            noise = (real.ERROR**2 + np.exp(2 * log_jitter)) * np.eye(len(days))
            oracle = stats.multivariate_normal(cov=design @ design.T + noise).logpdf(v)
            differences.append(value - oracle)
    np.testing.assert_allclose(differences, differences[0], atol=1e-8)


def test_every_model_has_a_reference():
    for name in real.MODELS:
        mean, sd = reference.moments(name)
        assert np.isfinite(mean).all()
        assert (sd > 0).all()
    stored = reference.load()
    assert {r["code"] for r in stored.values()} == {reference.code()}


@pytest.mark.slow
def test_black_boxes_are_counted_one_round_an_evaluation():
    """KamiltonianStep on the six patients: its solver's calls, by a count of our own."""
    target, calls, budget = problem("PK, 6 patients"), [], 600
    counted = Counted(target.log_density(None), budget)
    with pytest.MonkeyPatch.context() as patch:
        perform = hierarchical.BlackBox.perform
        patch.setattr(
            hierarchical.BlackBox, "perform", lambda *given: (calls.append(1), perform(*given))[1]
        )
        draws = samplers.function("kamiltonian")(Task(target, counted, budget, 0, 0))
    assert len(calls) / target.boxes <= budget + 1  # one more while the model is compiled
    assert 0.9 * budget < counted.evaluations <= budget
    assert 0.4 * budget < draws.values.shape[1] <= 0.6 * budget


def test_particles_do_not_begin_at_an_initial_value():
    with pm.Model() as model:
        pm.HalfNormal("sd", 1.0, initval=0.3)

    def begins():
        with model:
            return sequential.pymc_steps.IMH(
                draws=50, model=model, random_seed=1
            ).initialize_population()

    assert np.std(begins()["sd_log__"]) == 0.0  # PyMC's way
    with sequential.without_initial_values(model):
        assert np.std(begins()["sd_log__"]) > 0.3
    assert np.std(begins()["sd_log__"]) == 0.0
