"""``python scenarios.py TREE FOLDER [scenario ...]``: short runs of all that learns, each to FOLDER/<name>.npz.

Run for two trees by ``tests.streams.compare``, with TREE in ``PYTHONPATH``: nothing but its package is imported, few
options are used. Every run ends with draws from a surrogate, or it fails.
"""

import logging
import sys
import tempfile
import traceback
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.compile.ops import wrap_py

import pymc_kameleon as pk

LEARNED = ("surrogate", "screened", "hamiltonian")  # moves
GROUPS = (
    "warmup_posterior", "warmup_sample_stats", "posterior", "sample_stats", "evaluations", "surrogate_posterior",
)  # fmt: skip
CLOCKS = ("time", "perf_counter")  # NUTS' statistics
OWN_LINKER = ("outputs", "log_likelihoods")  # whose graphs trajectories evaluate ten thousand times
RATES, TIMES = (0.6, 1.9), np.array([0.3, 1.0])


def banana(noise=None):
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, [1.0, 5.0], shape=2)
        pm.Potential("likelihood", -2.0 * pt.sqr(0.1 * x[1] + 0.5 * pt.sqr(x[0]) - 0.5))
        if noise is not None:
            pm.Potential("estimate", noise(x))
    return model


def estimate(rng, x):
    return 0.5 * rng.standard_normal() - 0.125


def estimate_given(u, x):
    return float(np.log(np.mean(np.exp(0.8 * u - 0.32))))


def two_modes():
    """N((-10, 0), I) and N((10, 0), diag(.25, 1))."""
    with pm.Model() as model:
        x = pm.Uniform("x", -40.0, 40.0, shape=2)
        left, right = pt.sqr(x[0] + 10.0), 4.0 * pt.sqr(x[0] - 10.0)
        pm.Potential("likelihood", pt.logaddexp(-0.5 * left, -0.5 * right) - 0.5 * pt.sqr(x[1]))
    return model


def decay(rate):
    return np.exp(-np.exp(rate) * TIMES)


def two_groups(predicts):
    """A rate for each; the black boxes return predictions, or log likelihoods."""
    with pm.Model() as model:
        rate = pm.Normal("rate", pm.Normal("mean", 0, 1), pm.HalfNormal("spread", 1), shape=2)
        for k, truth in enumerate(RATES):
            y = decay(np.log(truth)) + 0.05 * np.cos(9.0 * TIMES + truth)
            if predicts:
                box = wrap_py([pt.dscalar], [pt.TensorType("float64", shape=(2,))])(decay)
                pm.Normal(f"y{k}", box(rate[k]), 0.1, observed=y)
            else:
                fits = wrap_py([pt.dscalar], [pt.dscalar])(lambda r, y=y: np.array(-50.0 * np.sum((decay(r) - y) ** 2)))
                pm.Potential(f"y{k}", fits(rate[k]))
    return model


def alone(model, tune=400, make=pk.KamiltonianStep, **options):
    with model:
        return pm.sample(
            80, tune=tune, chains=2, cores=1, step=make(**options), random_seed=1, progressbar=False,
            compute_convergence_checks=False, discard_tuned_samples=False,
        )  # fmt: skip


def together(model, max_evaluations=900, **options):
    given = {"random_seed": 1, "progressbar": False, "discard_tuned_samples": False, **options}
    with model:
        return pk.sample(chains=8, max_evaluations=max_evaluations, **given)


def beside_nuts():
    with banana() as model:
        y = pm.Normal("y", model["x"][0], 1.0)
    return alone(model, 500, lambda: [pm.NUTS([y]), pk.KamiltonianStep([model["x"]])])


def in_modes():
    points = [{"x": np.array([10.0 * (-1) ** (k // 2), 0.0])} for k in range(8)]
    idata = together(two_modes(), 1200, initvals=points)
    assert np.unique(idata["sample_stats"]["mode"]).size > 1, "one mode"
    return idata


def cut():
    with tempfile.TemporaryDirectory() as folder:
        together(banana(), 700, checkpoint=folder, tune=60)
        return together(banana(), 1000, checkpoint=folder, tune=60)


def saved():
    """A chain whose state goes through a file in mid-tuning."""
    points, stats = [], {}
    with banana() as model, tempfile.TemporaryDirectory() as folder:
        step, point, rng = pk.KamiltonianStep(), model.initial_point(), np.random.default_rng(1)
        step.setup_chain(rng, 0, 0) if hasattr(step, "setup_chain") else step.set_rng(rng)
        for k in range(480):
            if k == 180:
                pk.save_state(step, f"{folder}/state")
                step = pk.KamiltonianStep()
                point = pk.load_state(step, f"{folder}/state")
            if k == 400:
                step.stop_tuning()
            point, [found] = step.step(point)
            points.append(point["x"])
            for name, value in found.items():
                stats.setdefault(name, []).append(value)
    del stats["warning"]
    one = {name: np.array(values)[None] for name, values in stats.items()}
    return {"posterior": {"x": np.array(points)[None]}, "sample_stats": one}


def arrays(idata):
    """Name and values of all that a run returned but clocks."""
    found = {}
    for group in GROUPS:
        with suppress(KeyError):
            variables = getattr(idata[group], "data_vars", idata[group])
            for name in variables:
                if not any(clock in name for clock in CLOCKS):
                    value = np.asarray(variables[name])
                    found[f"{group}.{name}"] = value.astype(str) if value.dtype == object else value
    moves = set(found["sample_stats.move"][:, -80:].astype(str).ravel())
    assert any(move.startswith(LEARNED) for move in moves), f"no surrogate, only {moves}"
    return found


def noisy(*args, **options):
    return banana(pk.NoisyLogLikelihood(*args, **options))


SCENARIOS = {
    "values": lambda: alone(banana()),
    "noisy": lambda: alone(noisy(estimate), 600),
    "correlated": lambda: alone(noisy(estimate_given, (4,)), 600, correlation=0.9),
    "beside_nuts": beside_nuts,
    "warm": lambda: alone(banana(), 150, evaluations=together(banana(), 500)),
    "outputs": lambda: alone(two_groups(True), 250),
    "log_likelihoods": lambda: alone(two_groups(False), 250),
    "screened": lambda: alone(banana(), 600, pk.FastKameleonStep),
    "lite": lambda: alone(banana(), 600, surrogate=pk.Lite(n_history=100)),
    "finite_online": lambda: alone(banana(), 600, surrogate=pk.Finite(n_features=50, online=True)),
    "pooled": lambda: together(banana()),
    "pooled_factors": lambda: together(two_groups(True)),
    "control_variates": lambda: together(banana(), control_variates=True),
    "modes": in_modes,
    "pooled_noisy": lambda: together(noisy(estimate)),
    "cut": cut,
    "saved": saved,
}


def main(tree, folder, *names):
    assert Path(pk.__file__).is_relative_to(tree), f"{pk.__file__} is not in {tree}"
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    for name in names or SCENARIOS:
        mode = "Mode" if name in OWN_LINKER else "FAST_COMPILE"
        with pytensor.config.change_flags(mode=mode):
            try:
                found = arrays(SCENARIOS[name]())
            except Exception as error:
                traceback.print_exc()
                found = {"raised": np.array(f"{type(error).__name__}: {error}")}
        np.savez(Path(folder) / f"{name}.npz", **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
