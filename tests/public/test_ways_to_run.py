"""Every way to run beside every way to learn: the cells that no other module holds; docs/choosing.md names them all."""

import itertools
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import wrap_py

import pymc_kameleon as pk
from pymc_kameleon.sampling.arguments import plan_of
from pymc_kameleon.steps.factors.factored_density import FactoredDensity
from pymc_kameleon.steps.log_density import LogDensity
from tests.public.test_sample import sample
from tests.step_tester import begin, drive
from tests.support.hierarchies import BlackBox

DATA = (0.5, 1.0)


def estimate(rng, mu):
    return -0.5 * float(mu) ** 2 + 0.5 * rng.standard_normal() - 0.125


def guess(rng, mu):
    return float(mu) + 0.3 * rng.standard_normal()


def with_work(rng, mu, work):
    return -0.5 * float(mu) ** 2 + float(np.log(np.mean(np.exp(rng.standard_normal(work) - 0.5))))


def of_normals(u, mu):
    return -0.5 * float(mu) ** 2 + 0.5 * float(u[0]) - 0.125


NOISY = {
    "term": lambda mu: pm.Potential("noisy", pk.NoisyLogLikelihood(estimate)(mu)),
    # a black box whose output is an estimate, inside PyMC's likelihood
    "output": lambda mu: pm.Normal("noisy", pk.NoisyLogLikelihood(guess)(mu), 1.0, observed=0.2),
    "work": lambda mu: pm.Potential("noisy", pk.NoisyLogLikelihood(with_work, work=7)(mu)),
    "normals": lambda mu: pm.Potential("noisy", pk.NoisyLogLikelihood(of_normals, auxiliary_shape=(1,))(mu)),
    None: lambda mu: None,
}


def made(noise):
    """Two exact solvers of one unknown each, and a noisy term beside them, or none."""
    solve = BlackBox(lambda x: np.sinh(x))
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0)
        theta = pm.Normal("theta", mu, 1.0, shape=2)
        for k, y in enumerate(DATA):
            pm.Normal(f"y{k}", solve(theta[k]), 0.5, observed=y)
        NOISY[noise](mu)
    return model


@pytest.fixture(scope="module")
def models():
    return {noise: made(noise) for noise in ("term", "output", "work", "normals")}


@pytest.fixture(scope="module")
def steps(models):
    return {noise: pk.KamiltonianStep(model=models[noise], tune=80) for noise in ("term", "output", "work")}


@pytest.fixture(scope="module")
def sampled(models, steps):
    """A run of each, made when asked for."""
    return cache(lambda noise: sample(models[noise], steps[noise], max_evaluations=160, chains=4))


def rows_of(found, names=("mu", "theta")):
    """Points and log densities as bytes, of every evaluation."""
    columns = [found[name].values.reshape(len(found["_log_density"]), -1) for name in names]
    return {row.tobytes() for row in np.column_stack([*columns, found["_log_density"].values])}


# --- black boxes beside noise -----------------------------------------------------------------------


@pytest.mark.whole
@pytest.mark.parametrize("noise", ["term", "output", None])
def test_beside_noise_the_whole_is_learned_and_the_factor_named(noise, caplog):
    """Without it black boxes are learned one by one."""
    with caplog.at_level(logging.INFO, "pymc.kameleon"):
        assert pk.KamiltonianStep(model=made(noise)).by_factors == (noise is None)
    for said in ("Learning the log density as a whole", "noisy is an estimate, which draws random numbers"):
        assert (said in caplog.text) == (noise is not None)


def test_what_is_expensive_cannot_be_learned_by_itself_beside_noise(models):
    with pytest.raises(ValueError, match=r"expensive names BlackBox.*: noisy is an estimate.*Without expensive="):
        pk.KamiltonianStep(model=models["term"], expensive=["BlackBox"])


@pytest.mark.whole
@pytest.mark.parametrize("noise", ["term", "output", "work"])
def test_pk_sample_retains_the_estimate_that_was_accepted(sampled, steps, noise):
    """Every draw is an evaluation with its noise, in the record; the control is the same point estimated anew."""
    found = sampled(noise)
    draws, lp = found["posterior"], found["sample_stats"]["lp"].values
    kept = np.column_stack([draws["mu"].values.ravel(), draws["theta"].values.reshape(-1, 2), lp.ravel()])
    known = rows_of(found["evaluations"])
    assert all(row.tobytes() in known for row in kept)
    assert len(np.unique(kept, axis=0)) > 10
    anew = [steps[noise].density(row[:3].copy()) for row in kept]
    assert not any(np.append(row[:3], value).tobytes() in known for row, value in zip(kept, anew, strict=True))


@pytest.mark.parametrize("noise", ["term", "output"])
def test_pm_sample_retains_the_estimate_that_was_accepted(models, steps, noise):
    step = begin(steps[noise])
    found: dict = {}
    points, stats = drive(step, models[noise].initial_point(), 40, tune=80)
    for point, stat in zip(points[80:], stats[80:], strict=True):  # a point that stays has one estimate
        found.setdefault(point["mu"].tobytes() + point["theta"].tobytes(), set()).add(float(stat["model_logp"]))
    assert len(found) > 5
    assert max(map(len, found.values())) == 1
    assert any(s["theta"].tobytes() == t["theta"].tobytes() for s, t in itertools.pairwise(points[80:]))


# --- noise in pk.sample -----------------------------------------------------------------------------


def test_noise_with_workers_and_a_checkpoint(models, steps, tmp_path):
    model, step, few = models["term"], steps["term"], {"max_evaluations": 60, "chains": 4}
    first = sample(model, step, checkpoint=tmp_path, **few)["posterior"]["mu"].values
    with ThreadPoolExecutor(2) as executor:
        there = sample(model, step, executor=executor, **few)
    assert there["posterior"]["mu"].values.tobytes() == first.tobytes()
    longer = sample(model, step, checkpoint=tmp_path, max_evaluations=80, chains=4)
    assert longer["posterior"]["mu"].values[:, : first.shape[1]].tobytes() == first.tobytes()


def test_under_noise_known_points_are_begun_at_and_estimated_anew(models, steps, sampled):
    earlier, options = sampled("term"), {"max_evaluations": 60, "chains": 4, "random_seed": 2}
    found = sample(models["term"], steps["term"], evaluations=earlier, **options)["evaluations"]
    starts = found.isel(evaluation=found["_move"].values.astype(str) == "start")
    places = {row[: -len(row) // 4] for row in rows_of(earlier["evaluations"])}
    assert {row[: -len(row) // 4] for row in rows_of(starts)} <= places
    assert not rows_of(starts) & rows_of(earlier["evaluations"])


def test_work_is_taken_as_given_and_said(models, steps, caplog):
    """Though the step has tuned another in a chain of its own."""
    step = steps["work"]
    step.density.work = (3,)
    with caplog.at_level(logging.INFO, "pymc.kameleon"):
        sample(models["work"], step, max_evaluations=40, chains=4)
    assert step.density.work == (7,)
    assert "takes the estimator's work as given, 7, where pm.sample tunes it" in caplog.text


def test_correlated_noise_is_refused_with_what_to_do(models):
    step = pk.KamiltonianStep(model=models["normals"], correlation=0.9)
    with pytest.raises(ValueError, match=r"no correlation=.*Leave them out, or take pm.sample\(step=...\)"):
        pk.sample(model=models["normals"], step=step)


# --- modes, and other steps -------------------------------------------------------------------------


def test_where_nothing_climbs_the_report_says_that_no_mode_was_looked_for(sampled):
    assert sampled("term")["posterior"].attrs["climbs"] == 0
    assert "No climb has ended that could tell of other modes: none begins under noise." in pk.report(sampled("term"))


def test_what_pk_sample_decides_itself_is_refused_or_said(models, caplog):
    model = models["term"]
    with pytest.raises(ValueError, match=r"no arrival=False.* initvals= or evaluations="):
        pk.sample(model=model, step=pk.KamiltonianStep(model=model, arrival=False))
    with caplog.at_level(logging.INFO, "pymc.kameleon"), pytest.raises(ValueError, match="executor must be"):
        pk.sample(model=model, step=pk.KamiltonianStep(model=model, tune=50), executor="none")
    assert "tunes for as long as its tune= says, whatever its step's, 50" in caplog.text


@pytest.mark.parametrize("kind", ["KameleonStep", "AdaptiveMetropolisStep"])
def test_other_steps_are_refused_with_what_to_do(models, kind):
    with pytest.raises(ValueError, match=r"from positions. Leave step= out, or take pm.sample\(step=...\)"):
        pk.sample(model=models["term"], step=getattr(pk, kind)(model=models["term"]))


@pytest.mark.parametrize("by_factors", [True, False])
def test_only_the_whole_has_to_have_few_unknowns(by_factors):
    density = FactoredDensity.__new__(FactoredDensity) if by_factors else LogDensity.__new__(LogDensity)
    density.dim, density.noisy = 200, False
    if by_factors:
        assert plan_of(None, "auto", 16, 2000, None, density).max_evaluations == 2000
    else:
        with pytest.raises(ValueError, match=r"200 dimensions are more than .* use pm.sample with FastKameleonStep"):
            plan_of(None, "auto", 16, 2000, None, density)


def test_an_op_that_cannot_be_pickled_is_said_to_be_made_elsewhere():
    @wrap_py(itypes=[pt.dvector], otypes=[pt.dscalar])
    def hidden(x):
        return -0.5 * x @ x

    with pm.Model(), ThreadPoolExecutor(2) as pool:
        pm.Potential("p", hidden(pm.Normal("x", shape=2)))
        with pytest.raises(Exception, match="pickle") as caught:
            pk.sample(max_evaluations=100, executor=pool, progressbar=False)
    assert "at the top of a module" in caught.value.__notes__[-1]
