"""A chain goes on from a file as it would have gone on: same bits, tuning and after, noise included."""

import subprocess
import sys

import numpy as np
import pymc as pm
import pytest
from pymc.step_methods.compound import CompoundStep

import pymc_kameleon as pk
from pymc_kameleon.steps import saved_state
from tests import step_tester as tester
from tests.step_tester import NO_BLAS, BlackBox, assert_same_draws, begin, compiled_step, drive, every_step, make
from tests.support.hierarchies import BlackBox as Box

pytestmark = NO_BLAS
QUICK = {"compile_kwargs": {"mode": "FAST_COMPILE"}}
TUNE = 200


def goes_on(step, twin, point, path, draws):
    """Keep the state, go on, and let the twin go on from the file."""
    pk.save_state(step, path)
    begin(twin, 99)
    found = pk.load_state(twin, path)
    assert all(found[name].tobytes() == np.asarray(point[name]).tobytes() for name in found)
    assert_same_draws(drive(step, point, draws), drive(twin, found, draws))


@every_step
def test_the_same_draws_while_tuning_and_after(case, tmp_path):
    model = tester.gaussian()
    step, twin = compiled_step(case, model), compiled_step(case, model, twin=True)
    points, _ = drive(step, model.initial_point(), 3)
    goes_on(step, twin, points[-1], tmp_path / "arriving", 60)
    points, _ = drive(step, points[-1], TUNE)
    goes_on(step, twin, where_now(step, points), tmp_path / "tuning", 120)
    point = where_now(step, points)
    pk.save_state(step, tmp_path / "before")
    step.stop_tuning()
    pk.load_state(twin, tmp_path / "before")
    twin.stop_tuning()
    assert_same_draws(drive(step, point, 60), drive(twin, point, 60))
    goes_on(step, twin, where_now(step, points), tmp_path / "frozen", 60)


def where_now(step, points):
    """Where the step is now."""
    return step.density.update(points[-1], step.position)


def noisy_model(auxiliary):
    def estimate(source, x):
        noise = source.mean() if auxiliary else source.standard_normal()
        return -0.5 * float(x**2) + 0.3 * float(noise)

    shape = {"auxiliary_shape": (4,)} if auxiliary else {}
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0)
        pm.Potential("estimate", pk.NoisyLogLikelihood(estimate, **shape)(x))
    return model


@pytest.mark.parametrize("auxiliary", [False, True], ids=["streams", "normals"])
def test_noise_goes_on(auxiliary, tmp_path):
    model = noisy_model(auxiliary)
    options = {"correlation": 0.9} if auxiliary else {}
    step, twin = (pk.KameleonStep(model=model, **options, **QUICK) for _ in range(2))
    points, _ = drive(begin(step), model.initial_point(), 60)
    goes_on(step, twin, points[-1], tmp_path / "state", 40)
    step.stop_tuning()
    goes_on(step, twin, where_now(step, points), tmp_path / "state", 40)


def test_other_steps_variables_come_back(tmp_path):
    model = tester.switch()
    step, twin = (pk.AdaptiveMetropolisStep([model["x"]], model=model, **QUICK) for _ in range(2))
    point = model.initial_point() | {"k": np.array(1)}
    points, _ = drive(begin(step), point, 20)
    assert points[-1]["k"] == 1
    goes_on(step, twin, points[-1], tmp_path / "state", 30)


def test_from_a_callback_of_pm_sample(tmp_path):
    model = tester.gaussian()
    step, twin = (pk.AdaptiveMetropolisStep(model=model, **QUICK) for _ in range(2))

    def keep(trace, draw):
        if draw.draw_idx == 29:  # tuning draws are counted, too
            pk.save_state(step, tmp_path / "state")

    idata = tester.sample(step, model, draws=20, tune=40, chains=1, callback=keep)
    point = pk.load_state(begin(twin), tmp_path / "state")
    points, _ = drive(twin, point, 20, 10)
    went_on = tester.values(points[10:], "x")
    assert went_on.tobytes() == idata["posterior"]["x"].values[0].tobytes()


# --- in a new process ---------------------------------------------------------------------------------

RESUMED = {
    **tester.CASES,
    "fast_kameleon_screened": tester.Case(pk.FastKameleonStep, {"local_start": 60}, ()),
    "kamiltonian_lite": tester.Case(pk.KamiltonianStep, {"surrogate": pk.Lite(first_fit=80, n_history=60)}, ()),
}


def boxes():
    """Two black boxes, which KamiltonianStep learns one by one."""
    with pm.Model() as model:
        mu = pm.Normal("mu")
        x = pm.Normal("x", mu, 1.0, shape=2)
        for i in range(2):
            pm.Potential(f"y{i}", Box(lambda a: -0.5 * (a - 1.0) ** 2)(x[i]))
    return model


MODELS = {
    "normal": tester.gaussian,
    "noise": lambda: noisy_model(auxiliary=False),
    "normals": lambda: noisy_model(auxiliary=True),
    "boxes": boxes,
}
JOBS = [
    *((name, "normal", {}) for name in RESUMED),
    *((name, "noise", {}) for name in RESUMED),
    *((name, "normals", {"correlation": 0.9}) for name in ("kameleon", "gaussian_mixture")),
    ("kamiltonian", "boxes", {}),
]
AFTER = 80
IN_A_NEW_PROCESS = """
import sys
from tests.steps import test_saved_state
test_saved_state.resume_all(sys.argv[1])
"""


def resumed_step(name, model, options):
    return make(RESUMED[name], MODELS[model](), **options, **QUICK)


def draws_after(step, point, stop):
    """What comes next: every value of every point, and whether it was accepted; tuning ends on the way, if ``stop``."""
    points, stats = drive(step, point, AFTER)
    if stop:
        step.stop_tuning()
        more = drive(step, points[-1], AFTER)
        points, stats = points + more[0], stats + more[1]
    drawn = b"".join(np.asarray(v).tobytes() for p in points for v in p.values())
    return (drawn + bytes(int(s["accepted"]) for s in stats)).hex()


def resume_all(folder):
    """In the new process: each job's two files, and what comes next."""
    for i, (name, model, options) in enumerate(JOBS):
        step = resumed_step(name, model, options)
        for when in ("tuning", "frozen"):
            path = f"{folder}/{i}-{when}"
            point = pk.load_state(begin(step, 99), path)
            assert step.tune == (when == "tuning")
            with open(f"{path}.draws", "w") as file:
                file.write(draws_after(step, point, stop=when == "tuning"))


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """What comes next in this process and in a new one, by job and moment."""
    folder, here = tmp_path_factory.mktemp("resumed"), {}
    for i, (name, model, options) in enumerate(JOBS):
        step = begin(resumed_step(name, model, options))
        points, _ = drive(step, step.model.initial_point(), TUNE)
        pk.save_state(step, folder / f"{i}-tuning")
        here[i, "tuning"] = draws_after(step, where_now(step, points), stop=True)
        pk.save_state(step, folder / f"{i}-frozen")
        here[i, "frozen"] = draws_after(step, where_now(step, points), stop=False)
    command = [sys.executable, "-W", "ignore", "-c", IN_A_NEW_PROCESS, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return here, {key: (folder / "{}-{}.draws".format(*key)).read_text() for key in here}


@pytest.mark.slow  # an import, and a compilation each
@pytest.mark.parametrize("when", ["tuning", "frozen"])
@pytest.mark.parametrize("job", range(len(JOBS)), ids=[f"{n}-{m}" for n, m, _ in JOBS])
def test_in_a_new_process(job, when, resumed):
    """While tuning, past its end, and frozen; noise included."""
    here, there = resumed
    assert there[job, when] == here[job, when]
    assert len({*here.values()}) == len(here)  # and no two of them are the same


# --- what is refused ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    path = tmp_path_factory.mktemp("state") / "state"
    model = tester.gaussian()
    step = begin(pk.AdaptiveMetropolisStep(model=model, **QUICK))
    drive(step, model.initial_point(), 20)
    pk.save_state(step, path)
    return path, step


def refused(step, path, match):
    with pytest.raises(ValueError, match=match):
        pk.load_state(step, path)
    assert step.position is None  # nothing was changed


def test_another_step_is_refused(kept):
    path, _ = kept
    model = tester.gaussian()
    refused(pk.GaussianMixtureStep(model=model, **QUICK), path, "its method is adaptive_metropolis")
    other = pk.AdaptiveMetropolisStep(model=model, target_accept=0.3, **QUICK)
    refused(other, path, "its options is {'target_accept': 0.234}, and the step's is")
    refused(pk.AdaptiveMetropolisStep(model=tester.pair(), **QUICK), path, r"its var_names is \['x'\]")
    with pm.Model() as wider:
        pm.Flat("x", shape=4, initval=np.zeros(4))
    refused(pk.AdaptiveMetropolisStep(model=wider, **QUICK), path, r"its shapes is {'x': \(3,\)}")


def test_another_log_density_is_refused(kept):
    with pm.Model() as model:
        pm.Normal("x", 0.0, 1.0, shape=3)
        pm.Potential("box", BlackBox(tester.minus_half_square)(model["x"]))
    refused(pk.AdaptiveMetropolisStep(model=model, **QUICK), kept[0], "of another log density: at")


def test_other_files_are_refused(kept, tmp_path):
    path, _ = kept
    step = pk.AdaptiveMetropolisStep(model=tester.gaussian(), **QUICK)
    data = path.read_bytes()
    for size in (len(data) - 1, len(data) // 2, 60):
        (tmp_path / "cut").write_bytes(data[:size])
        refused(step, tmp_path / "cut", "damaged")
    flipped = bytearray(data)
    flipped[-5] ^= 1
    (tmp_path / "flipped").write_bytes(flipped)
    refused(step, tmp_path / "flipped", "damaged")
    (tmp_path / "text").write_text("chain")
    refused(step, tmp_path / "text", r"is no sampling state of pymc_kameleon\.")
    (tmp_path / "old").write_bytes(saved_state.MAGIC.replace(b"2", b"1") + b"{}")
    refused(step, tmp_path / "old", r"is a sampling state of another format of pymc_kameleon\.")


def test_another_version_is_refused(kept, monkeypatch):
    step = pk.AdaptiveMetropolisStep(model=tester.gaussian(), **QUICK)
    monkeypatch.setattr(saved_state, "_package", lambda: "9.9")
    refused(step, kept[0], "written by pymc_kameleon .*, and this is 9.9")


def test_what_cannot_be_kept_is_said(kept, tmp_path):
    _, step = kept
    with pytest.raises(TypeError, match="got CompoundStep"):
        pk.save_state(CompoundStep([step]), tmp_path / "state")
    new = pk.AdaptiveMetropolisStep(model=tester.gaussian(), **QUICK)
    with pytest.raises(ValueError, match="has not made a draw yet"):
        pk.save_state(new, tmp_path / "state")
    assert not list(tmp_path.iterdir())


def test_a_file_names_records_of_this_package_only():
    for name in ("os:system", "subprocess:Popen", "pymc_kameleon.sampling.workers:evaluate", "builtins:eval"):
        with pytest.raises(ValueError, match="a sampling state has no"):
            saved_state._class(name)


def test_what_was_one_object_is_one_again():
    shared = np.arange(6.0).reshape(2, 3).T
    value = {"a": shared, "b": [shared, (1, np.float64(0.1), -0.0, float("nan"), 2**100)], "c": None}
    back = saved_state._unpacked(saved_state._packed(value), "file")
    assert back["a"] is back["b"][0]
    assert back["a"].flags.f_contiguous
    np.testing.assert_equal(back, value)
    assert type(back["b"][1][1]) is np.float64
    assert np.signbit(back["b"][1][2])
