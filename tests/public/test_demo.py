"""The demonstration: what it prints and writes, and that its posterior is the right one."""

from functools import partial

import arviz as az
import numpy as np
import pymc as pm
import pytest

import pymc_kameleon as pk
from benchmarks.posteriors import LotkaVolterra
from pymc_kameleon import demo, hierarchical_demo
from pymc_kameleon.__main__ import main


def refused(capsys, *options):
    """What is said of wrong options."""
    with pytest.raises(SystemExit) as ended:
        main(list(options))
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_wrong_options_say_what_is_allowed(capsys):
    said = refused(capsys, "--step", "nuts")
    for name in demo.STEPS:
        assert name in said
    assert "must be at least 1" in refused(capsys, "--chains", "0")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # as for a user: other packages announce their changes
def test_it_prints_and_writes(tmp_path, monkeypatch, capsys):
    """In this process: an import takes longer than the draws."""
    monkeypatch.chdir(tmp_path)
    options = ["--draws", "40", "--tune", "60", "--chains", "1", "--cores", "1", "--no-patients"]
    assert main(options) == 0
    out, printed = tmp_path / "demo-output", capsys.readouterr().out
    for name in ("trace.png", "populations.png", "lynx_hare.nc"):
        assert (out / name).stat().st_size > 10_000
    assert "alpha" in printed
    assert "101 " in printed  # tune + draws + 1 solves
    assert "pm.DEMetropolisZ" in printed


@pytest.mark.slow
def test_the_draws_do_not_depend_on_the_cores():
    options = {"draws": 20, "tune": 30, "chains": 2, "seed": 3}
    classes = [pk.AdaptiveMetropolisStep, pm.DEMetropolisZ]
    here = [demo.run(c, **options) for c in classes]
    with demo.processes(2) as mapped:
        elsewhere = list(mapped(partial(demo.run, **options), classes))
    for one, other in zip(here, elsewhere, strict=True):
        assert (one.name, one.evaluations) == (other.name, other.evaluations)
        np.testing.assert_array_equal(one.idata["posterior"]["alpha"], other.idata["posterior"]["alpha"])
    assert [one.name for one in here] == ["AdaptiveMetropolisStep", "pm.DEMetropolisZ"]
    assert here[0].evaluations == 2 * (20 + 30 + 1)


def test_the_patients_solver_converges():
    """A Runge-Kutta method of fourth order: against SciPy's at a small tolerance, within its error at this step."""
    from scipy.integrate import solve_ivp

    rate, volume, half = 25.0, 30.0, 4.0
    dose, absorption = hierarchical_demo.DOSE, hierarchical_demo.ABSORPTION

    def slope(t, c):
        return (absorption * dose * np.exp(-absorption * t) - rate * c / (half + c)) / volume

    exact = solve_ivp(slope, (0.0, 24.0), [0.0], t_eval=hierarchical_demo.TIMES, rtol=1e-9, atol=1e-12)
    found = hierarchical_demo.concentrations(np.log([[rate, volume]] * 2), half)
    np.testing.assert_allclose(found, np.tile(exact.y, (2, 1)), rtol=1e-4)


@pytest.mark.slow
def test_the_hierarchy_is_taken_apart_and_converges():
    result = demo.run(pk.KamiltonianStep, chains=4, seed=1, patients=True, **demo.HIERARCHY)
    assert result.idata["sample_stats"]["factors"].values.max() == 6
    assert max(float(np.max(v)) for v in az.rhat(result.idata).data_vars.values()) < 1.03


def log_parameters(idata):
    posterior = idata["posterior"]
    rates = [np.log(posterior[name].values)[..., None] for name in demo.PARAMETERS[:4]]
    return np.concatenate([*rates, np.log(posterior["initial"].values), np.log(posterior["sigma"].values)], axis=-1)


@pytest.mark.slow
@pytest.mark.parametrize("step_class", [pk.KameleonStep, pk.FastKameleonStep])
def test_posterior_is_right(step_class):
    """All R-hat < 1.02, and means within 4 standard errors of importance sampling's, whose own are .003 sds."""
    solver = demo.PredatorPrey()
    with demo.lynx_hare_model(solver):
        step = step_class()
        solver.calls = 0
        idata = pm.sample(10_000, tune=5_000, chains=4, cores=1, step=step, random_seed=1, progressbar=False)
    draws, screened = 4 * (10_000 + 5_000 + 1), step_class is pk.FastKameleonStep
    assert 0.9 * draws < solver.calls < draws if screened else solver.calls == draws  # one that stays asks nothing
    ours, truth = log_parameters(idata), LotkaVolterra()
    for i in range(8):
        draws = np.ascontiguousarray(ours[..., i])
        assert float(az.rhat(draws)) < 1.02
        error = np.hypot(float(az.mcse({"x": draws})["x"]), truth.mean_error[i])
        assert abs(draws.mean() - truth.mean[i]) < 4 * error
