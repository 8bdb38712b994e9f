"""Two chains in threads: with a step each they are what they are one after the other; with one step it is refused."""

import sys
import threading

import numpy as np
import pymc as pm
import pytest

from pymc_kameleon.steps import AdaptiveMetropolisStep
from tests import step_tester as tester
from tests.step_tester import NO_BLAS, begin, compiled_step, drive, every_step
from tests.support.hierarchies import BlackBox

pytestmark = NO_BLAS


@pytest.fixture(autouse=True)
def _threads_that_take_turns():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def in_threads(*calls):
    """What the calls, made side by side, return."""
    found: list = [None] * len(calls)

    def run(k):
        found[k] = calls[k]()

    threads = [threading.Thread(target=run, args=(k,)) for k in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@every_step
def test_two_steps_in_two_threads(case):
    model = tester.gaussian()

    def chain(twin):
        step = compiled_step(case, model, seed=int(twin), twin=twin)
        return tester.values(drive(step, model.initial_point(), 30, 250)[0], "x")

    after_each_other = [chain(False), chain(True)]
    side_by_side = in_threads(lambda: chain(False), lambda: chain(True))
    for one, other in zip(after_each_other, side_by_side, strict=True):
        assert one.tobytes() == other.tobytes()
    assert not np.array_equal(*side_by_side)


def test_one_step_in_two_threads_is_refused():
    """The second thread calls while the first is inside of the black box."""
    heard = []

    def meddle():
        with pytest.raises(RuntimeError, match="in another thread: a step is one chain") as refused:
            step.step(model.initial_point())
        heard.append(refused.value)

    def function(x):
        if len(heard) == 1:
            in_threads(meddle)
        heard.append(x)
        return -0.5 * float(x) ** 2

    with pm.Model() as model:
        pm.Potential("box", BlackBox(function)(pm.Normal("x")))
        step = AdaptiveMetropolisStep(compile_kwargs={"mode": "FAST_COMPILE"}, arrival=False)
    points, _ = drive(begin(step), model.initial_point(), 5)
    assert sum(isinstance(h, RuntimeError) for h in heard) == 1
    assert len(points) == 5  # and the first goes on


def test_without_the_lock_it_is_refused(monkeypatch):
    """A free-threaded build whose lock is off; with the lock on, such a build is as any other."""
    model = tester.gaussian()
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    with pytest.raises(RuntimeError, match=r"AdaptiveMetropolisStep needs .* PYTHON_GIL=1"):
        AdaptiveMetropolisStep(model=model)
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True)
    AdaptiveMetropolisStep(model=model, compile_kwargs={"mode": "FAST_COMPILE"})
