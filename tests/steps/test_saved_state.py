"""A chain goes on as it would have gone on, from a state and from a file: same bits, noise included."""

import copy
import pickle
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pymc as pm
import pytest
from pymc.step_methods.compound import CompoundStep
from pymc.step_methods.state import equal_dataclass_values

import pymc_kameleon as pk
from pymc_kameleon.kernels import Matern
from pymc_kameleon.numerics.history import History
from pymc_kameleon.steps import saved_state
from tests import step_tester as tester
from tests.step_tester import CASES, Case, assert_same_draws, begin, drive, make, noisy_model
from tests.steps import test_estimator_work as work
from tests.support.hierarchies import BlackBox, schools

pytestmark = [tester.NO_BLAS, work.OBJECT_MODE]
QUICK = {"compile_kwargs": {"mode": "FAST_COMPILE"}}
TUNE = 200


@cache
def boxes():
    """Two black boxes, which KamiltonianStep learns one by one."""
    with pm.Model() as model:
        mu = pm.Normal("mu")
        x = pm.Normal("x", mu, 1.0, shape=2)
        for i in range(2):
            pm.Potential(f"y{i}", BlackBox(lambda a: -0.5 * (a - 1.0) ** 2)(x[i]))
    return model


@cache
def angles():
    """A direction across the ends of its period, and a hierarchy beside it."""
    with pm.Model() as model:
        direction = pm.VonMises("direction", 3.1, 2.0)
        mu = pm.Normal("mu")
        pm.Normal("y", pm.Normal("x", mu, 1.0, shape=2) + pm.math.cos(direction), 1.0, observed=[0.5, -0.5])
    return model


MODELS = {
    "normal": (tester.gaussian, {}),  # where CASES goes through all its moves in TUNE draws
    "shapes": (tester.shapes, {}),  # where 200 draws are an arrival in other coordinates
    "noise": (cache(lambda: noisy_model(tester.Estimate(0.3))), {}),
    "normals": (cache(lambda: noisy_model(lambda u, x: -0.5 * x**2 + 0.3 * u.mean(), (4,))), {"correlation": 0.9}),
    "work": (cache(lambda: noisy_model(work.Estimate(), work=20)), {}),
    "switch": (tester.switch, {"vars": ["x"]}),  # the step of k is another
    "boxes": (boxes, {}),
    "hierarchy": (cache(lambda: schools()[0]), {}),
    "angles": (angles, {}),  # whose period is chosen where the climb ends
}
STEPS = {
    **CASES,
    "fast_kameleon_screened": Case(pk.FastKameleonStep, {"local_start": 60}, ()),
    "kamiltonian_lite": Case(pk.KamiltonianStep, {"surrogate": pk.Lite(first_fit=80, n_history=60)}, ()),
}
OF_EVERY_STEP = [(name, model) for model in ("normal", "noise", "work", "switch") for name in STEPS]
OTHERS = ["kameleon angles", "kameleon shapes", "kameleon normals", "gaussian_mixture normals", "kamiltonian boxes"]
JOBS = [*OF_EVERY_STEP, *(tuple(job.split()) for job in [*OTHERS, "fast_kameleon_screened hierarchy"])]
FAST = [("kameleon", model) for model in ("normal", "shapes", "normals", "work", "switch", "angles")]


def built(job):
    """A step that is in no chain."""
    name, (model, options) = job[0], MODELS[job[1]]
    given = {**options, **QUICK}
    if "vars" in given:
        given["vars"] = [model()[v] for v in given["vars"]]
    return make(STEPS[name], model(), **given)


cached = cache(lambda job, twin: built(job))  # compiling costs more than a test


def assert_same_state(first, second):
    """Equal to the last bit. Of a ``History`` only the first ``size`` rows mean anything: a chain that begins again
    gets other memory, and what was in it before."""
    first, second = copy.deepcopy(first), copy.deepcopy(second)
    for state in (first, second):
        for past in histories(state.algorithm_state):
            past.buffer[past.size :] = 0.0
    assert equal_dataclass_values(first, second)


def histories(state):
    if isinstance(state, History):
        yield state
    elif isinstance(state, tuple):
        for part in state:
            yield from histories(part)


MOMENTS = {"before the first draw": 0, "arriving": 3, "while tuning": 120, "after tuning": TUNE}


@pytest.mark.whole
@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
@pytest.mark.parametrize(
    "job", [pytest.param(j, id="-".join(j), marks=[] if j in FAST else pytest.mark.slow) for j in JOBS]
)
def test_a_chain_goes_on_here_in_another_step_and_from_a_file(job, moment, tmp_path):
    """Past the end of tuning; points, statistics and final state."""
    step, twin = cached(job, False), cached(job, True)
    start = step.model.initial_point()
    point = start | {name: np.array(1) for name in start if name == "k"}
    points, _ = drive(begin(step), point, moment)
    if moment == TUNE:
        step.stop_tuning()
    point, state = [point, *points][-1], step.sampling_state
    assert equal_dataclass_values(state, state)  # a NaN would not be equal to itself
    found = [(step, state), (twin, pickle.loads(pickle.dumps(state)))]
    if moment:
        pk.save_state(step, tmp_path / "state")
        found.append((twin, tmp_path / "state"))
    rest = (20, 0 if moment == TUNE else 30)
    expected = drive(step, point, *rest)
    final, evaluations = step.sampling_state, step.evaluations
    for again, given in found:
        if again is twin:  # it has a past of its own
            drive(begin(twin, 7), start, 20)
        if isinstance(given, Path):
            loaded = pk.load_state(again, given)
            assert all(loaded[name].tobytes() == np.asarray(point[name]).tobytes() for name in loaded)
        else:
            again.sampling_state = given
        assert_same_draws(expected, drive(again, point, *rest))
        assert again.evaluations == evaluations
        assert_same_state(final, again.sampling_state)


def test_from_a_callback_of_pm_sample(tmp_path):
    model = tester.gaussian()
    step, twin = (pk.AdaptiveMetropolisStep(model=model, **QUICK) for _ in range(2))

    def keep(trace, draw):
        if draw.draw_idx == 29:  # tuning draws are counted, too
            pk.save_state(step, tmp_path / "state")

    idata = tester.sample(step, model, draws=20, tune=40, chains=1, callback=keep)
    point = pk.load_state(begin(twin), tmp_path / "state")
    points, _ = drive(twin, point, 20, 10)
    np.testing.assert_array_equal(tester.values(points[10:], "x"), idata["posterior"]["x"].values[0])


# --- in a new process ---------------------------------------------------------------------------------

AFTER = 80
IN_A_NEW_PROCESS = "import sys; from tests.steps import test_saved_state as test; test.resume_all(sys.argv[1])"


def draws_after(step, point):
    """What comes next: every value of every point, and whether it was accepted; tuning ends on the way. And where."""
    points, stats = drive(step, point, AFTER, AFTER if step.tune else 0)
    drawn = b"".join(np.asarray(v).tobytes() for p in points for v in p.values())
    return (drawn + bytes(int(s["accepted"]) for s in stats)).hex(), points[-1]


def resume_all(folder):
    """In the new process: each job's two files, and what comes next."""
    for i, job in enumerate(JOBS):
        step = built(job)
        for when in ("tuning", "frozen"):
            point = pk.load_state(begin(step, 99), f"{folder}/{i}-{when}")
            assert step.tune == (when == "tuning")
            with open(f"{folder}/{i}-{when}.draws", "w") as file:
                file.write(draws_after(step, point)[0])


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """What comes next in this process and in a new one, by job and moment."""
    folder, here = tmp_path_factory.mktemp("resumed"), {}
    for i, job in enumerate(JOBS):
        step = begin(built(job))
        point = drive(step, step.model.initial_point(), TUNE)[0][-1]
        for when in ("tuning", "frozen"):
            pk.save_state(step, folder / f"{i}-{when}")
            here[i, when], point = draws_after(step, point)
    command = [sys.executable, "-W", "ignore", "-c", IN_A_NEW_PROCESS, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return here, {key: (folder / "{}-{}.draws".format(*key)).read_text() for key in here}


@pytest.mark.slow  # an import, and a compilation each
@pytest.mark.parametrize("when", ["tuning", "frozen"])
@pytest.mark.parametrize("job", range(len(JOBS)), ids=["-".join(job) for job in JOBS])
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
    step = begin(pk.KameleonStep(model=model, n_history=40, **QUICK))
    drive(step, model.initial_point(), 20)
    pk.save_state(step, path)
    return path, step


def refused(step, path, match):
    """And nothing of it is taken over."""
    drive(begin(step, 3), step.model.initial_point(), 3)
    before = step.sampling_state
    with pytest.raises(ValueError, match=match):
        pk.load_state(step, path)
    assert equal_dataclass_values(before, step.sampling_state)


def normal(size):
    with pm.Model() as model:
        pm.Normal("x", 0.0, 1.0, shape=size)
    return model


@pytest.mark.parametrize(
    ("kind", "model", "options", "said"),
    [
        (pk.GaussianMixtureStep, tester.gaussian, {}, "its method is kameleon"),
        (pk.KameleonStep, tester.gaussian, {"n_history": 41}, "its options is {'n_history': 40}, and the step's is"),
        (pk.KameleonStep, tester.gaussian, {"kernel": Matern(1.5)}, "its options is {'kernel'"),
        (pk.KameleonStep, tester.pair, {}, r"its var_names is \['x'\]"),
        (pk.KameleonStep, lambda: normal(4), {}, r"its shapes is {'x': \(3,\)}"),
        (pk.KameleonStep, lambda: normal(3), {}, "of another log density: at"),
    ],
)  # fmt: skip
def test_another_step_or_log_density_is_refused(kept, kind, model, options, said):
    given = {"n_history": 40} if kind is pk.KameleonStep else {}
    refused(kind(model=model(), **{**given, **options}, **QUICK), kept[0], said)


def test_other_files_are_refused(kept, tmp_path):
    data = kept[0].read_bytes()
    flipped = bytearray(data)
    flipped[-5] ^= 1
    old = saved_state.MAGIC.replace(b"2", b"1") + b"{}"
    found = dict.fromkeys((data[:-1], data[: len(data) // 2], data[:60], bytes(flipped)), "damaged")
    found[b"chain"] = r"is no sampling state of pymc_kameleon\."
    found[old] = r"is a sampling state of another format of pymc_kameleon\."
    for content, said in found.items():
        (tmp_path / "file").write_bytes(content)
        refused(kept[1], tmp_path / "file", said)


def test_another_version_is_refused(kept, monkeypatch):
    path, step = kept
    monkeypatch.setattr(saved_state, "package_version", lambda: "9.9")
    refused(step, path, "written by pymc_kameleon .*, and this is 9.9")
    state = step.sampling_state
    assert state.state_version == step.state_version > 0
    state.state_version += 1
    with pytest.raises(ValueError, match="state_version"):
        step.sampling_state = state
    del state.state_version, state.options  # as pickled before there were any
    with pytest.raises(ValueError, match="state_version is 0"):
        step.sampling_state = state


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
