"""The table of faults: what goes wrong, and what is seen. ``python -m tests.public.faults`` writes docs/faults.md.

A row is a test (:mod:`tests.public.test_faults`): the function does it and asserts what ``seen`` says.
"""

import math
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytest

import pymc_kameleon as pk
from pymc_kameleon import checkpoint
from pymc_kameleon.samplers.adaptive_metropolis import AdaptiveMetropolis
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian
from tests.samplers.test_seam import SAMPLERS
from tests.step_tester import begin, drive, sample
from tests.support import runs
from tests.support.hierarchies import BlackBox

PAGE = Path(__file__).parents[1].parent / "docs" / "faults.md"
QUICK = {"mode": "FAST_COMPILE"}
LONG = 20_000  # draws of which a busy machine sees few before a signal arrives


class Row(NamedTuple):
    """A fault; ``check`` takes a folder, does it, and asserts what is seen."""

    fault: str
    seen: str
    check: Callable
    slow: bool = False


# --- numbers ------------------------------------------------------------------------------------------


def normal(sd, offset=0.0, axes=None):
    def log_density(x):
        with np.errstate(over="ignore"):
            z = (x if axes is None else axes.T @ x) / sd
            return offset - 0.5 * float(np.square(z).sum())

    return log_density


def every_sampler(log_density, d, tune=400, n=200):
    """The sampler's name, and draws of it."""
    for name, sampler in SAMPLERS.items():
        with np.errstate(all="ignore"):
            yield name, runs.run(np.random.default_rng(1), sampler, log_density, np.zeros(d), tune=tune, n=n).draws


def identical_points(folder):
    for name, draws in every_sampler(lambda x: 0.0 if not x.any() else -math.inf, 2):
        assert (draws == 0.0).all(), name


def right_scales(log_density, d, folder):
    for name, draws in every_sampler(log_density, d, 600, 600):
        assert (np.abs(np.log(draws.std(axis=0))) < 0.7).all(), name


def many_dimensions(folder):
    d = 300
    for sampler in (AdaptiveMetropolis(), FastKameleon(n_features=20), ValueKamiltonian()):
        draws = runs.run(np.random.default_rng(1), sampler, normal(np.ones(d)), np.zeros(d), tune=300, n=100).draws
        assert np.isfinite(draws).all()
        assert len(np.unique(draws[:, 0])) > 5


def step_on(log_density, d, tune, n, **options):
    """Draws and warnings of a step, as ``pm.sample`` makes them."""
    with pm.Model() as model:
        pm.Potential("p", BlackBox(log_density)(pm.Flat("x", shape=d)))
        step = pk.AdaptiveMetropolisStep(compile_kwargs=QUICK, **options)
    with np.errstate(all="ignore"):
        points, stats = drive(begin(step, 1), model.initial_point(), n, tune)
    said = " ".join(s["warning"].message for s in stats if s["warning"] is not None)
    return np.array([p["x"] for p in points[tune:]]), said


def tiny(folder):
    draws, said = step_on(normal(np.full(2, 1e-300)), 2, 300, 320)
    assert (draws == draws[0]).all()
    assert "300 proposals after tuning were rejected in a row: the chain stands still" in said


def huge(folder):
    draws, said = step_on(normal(np.full(2, 1e300)), 2, 300, 320)
    assert np.isfinite(draws).all()
    assert "300 proposals after tuning were accepted in a row" in said


def rotated(folder):
    axes, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))
    sd = np.array([1e-8, 1.0, 1.0])
    draws, _ = step_on(normal(sd, axes=axes), 3, 1200, 1500)
    assert (np.abs(np.log((draws @ axes).std(axis=0) / sd)) < 0.7).all()


def lost_definiteness(folder):
    """A history in a plane: its covariance has no Cholesky factor."""
    sampler = AdaptiveMetropolis()
    rng, x = np.random.default_rng(0), np.zeros(3)
    state = sampler.init(rng, x)
    flat = lambda x: -0.5 * float(x[:2] @ x[:2]) if x[2] == 0.0 else -math.inf  # noqa: E731
    draws = runs.run(rng, sampler, flat, x, tune=600, n=50).draws
    assert np.isfinite(draws).all()
    assert (draws[:, 2] == 0.0).all()
    assert np.isfinite(sampler.freeze(state).factor).all()


# --- interruptions ------------------------------------------------------------------------------------


class Counted:
    """-x^2 / 2, and at the given evaluation something else happens, of those made in this process."""

    def __init__(self, at, action):
        self.at, self.action, self.calls = at, action, 0

    def __call__(self, x):
        self.calls += 1
        if self.calls == self.at:
            self.action()
        return quadratic(x)


class Elsewhere:
    """The same once, at an evaluation that another process makes; ``action`` is told this one's number."""

    def __init__(self, folder, at, action):
        self.folder, self.at, self.action, self.home = folder, at, action, os.getpid()

    def __call__(self, x):
        with (self.folder / "calls").open("ab") as file:
            file.write(b".")
        if os.getpid() != self.home and (self.folder / "calls").stat().st_size >= self.at:
            with suppress(FileExistsError):
                (self.folder / "done").touch(exist_ok=False)
                self.action(self.home)
        return quadratic(x)


def quadratic(x):
    return -0.5 * float(np.square(x).sum())


def kill(home):
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt():
    raise KeyboardInterrupt


def ctrl_c_sequential(folder):
    rng = np.random.default_rng(0)
    for at in rng.integers(30, 140, 3):
        with pm.Model():
            pm.Potential("p", BlackBox(Counted(int(at), interrupt))(pm.Flat("x")))
            step = pk.AdaptiveMetropolisStep(compile_kwargs=QUICK, arrival=False)
            idata = sample(step, None, draws=200, tune=10, chains=1)
        draws = idata["posterior"]["x"].values
        assert 0 < draws.size < 200
        assert np.isfinite(draws).all()
        drive(step, {"x": np.array(draws[0, -1])}, 5)  # and the step can be used


@cache
def pooled(function):
    with pm.Model() as model:
        pm.Potential("p", BlackBox(function)(pm.Normal("x", shape=2)))
        step = pk.KamiltonianStep(learn="all", compile_kwargs=QUICK)
    return model, step


def pooled_sample(function, **options):
    model, step = pooled(function)
    chosen = {"max_evaluations": 160, "chains": 4, "random_seed": 1, "progressbar": False}
    return pk.sample(model=model, step=step, **(chosen | options))


@cache
def undisturbed():
    """The draws of a run that nothing happens to."""
    return pooled_sample(quadratic)["posterior"]["x"].values


def ends_and_goes_on(folder, error, function, said=None, **options):
    """A run that ends with an error, leaves a checkpoint, and goes on with the same bits; the error."""
    with pytest.raises(error, match=said) as raised:
        pooled_sample(function, checkpoint=folder, **options)
    kept = checkpoint.load(folder).size
    assert kept < 160
    again = pooled_sample(quadratic, checkpoint=folder)["posterior"]["x"].values
    assert again.tobytes() == undisturbed().tobytes()
    return raised.value, kept


def ctrl_c_pooled(folder):
    whole = undisturbed()
    function = Counted(130, interrupt)
    part = pooled_sample(function)["posterior"]
    draws = part["x"].values
    assert part.attrs["stopped"] == "interrupted"
    assert 0 < draws.shape[1] < whole.shape[1]
    assert draws.tobytes() == whole[:, : draws.shape[1]].tobytes()


def ctrl_c_pooled_while_tuning(folder):
    _, kept = ends_and_goes_on(folder, KeyboardInterrupt, Counted(30, interrupt))
    assert 20 < kept < 30


def disk_full(folder):
    calls, sync = [0], os.fsync

    def full(descriptor):
        calls[0] += 1
        if calls[0] == 21:
            raise OSError(28, "No space left on device")
        sync(descriptor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", full)
        _, kept = ends_and_goes_on(folder, OSError, quadratic, "No space left on device")
    assert kept > 10


def executor():
    """Of one process, spawned: fork with threads is no place to be killed in."""
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def worker_killed(at, folder):
    with executor() as pool:
        box = Elsewhere(folder, at, kill)
        broken, kept = ends_and_goes_on(folder / "run", BrokenExecutor, box, executor=pool)
    assert at - 20 < kept < at
    assert "pk.sample(checkpoint=...) goes on from the last round" in broken.__notes__[0]


def worker_killed_and_made_anew(folder):
    made = []

    def make():
        made.append(executor())
        return made[-1]

    try:
        found = pooled_sample(Elsewhere(folder, 70, kill), executor=make)["posterior"]["x"].values
    finally:
        for pool in made:
            pool.shutdown()
    assert len(made) == 2
    assert found.tobytes() == undisturbed().tobytes()


def hangs(folder):
    """In the process that evaluates, for longer than ``timeout``, twice."""
    with executor() as pool:
        with pytest.raises(TimeoutError) as late:
            pooled_sample(sleepy, executor=pool, timeout=4.0)
        for process in pool._processes.values():
            process.kill()
    assert "No log density within 4.0 s, twice" in late.value.__notes__[0]


def sleepy(x):
    time.sleep(60.0)
    return 0.0


def parallel(folder, action):
    """Two chains in processes of their own, in one of which ``action`` happens."""
    with pm.Model():
        pm.Potential("p", BlackBox(Elsewhere(folder, 400, action))(pm.Flat("x")))
        step = pk.AdaptiveMetropolisStep(compile_kwargs=QUICK, arrival=False)
        return sample(step, None, draws=LONG, tune=10, cores=2, mp_ctx="fork")


def ctrl_c_parallel(folder):
    draws = parallel(folder, lambda home: os.kill(home, signal.SIGINT))["posterior"]["x"].values
    assert 10 < draws.shape[1] < LONG
    assert np.isfinite(draws).all()


def chain_killed(folder):
    with pytest.raises((RuntimeError, EOFError, ConnectionError)):
        parallel(folder, kill)
    assert not multiprocessing.active_children()


def limited(what, folder):
    from tests.public.limited import start  # which stands on this module

    start(what, folder)


ROWS = [
    Row("a chain that cannot move: a history of identical points", "it stands; nothing is learned, nothing raises, every sampler", identical_points),
    Row("a covariance that is not positive definite: a history in a plane", "the last one stays, and the draws are finite", lost_definiteness),
    Row("log densities of the order of 1e9", "right scales, every sampler", partial(right_scales, normal(np.ones(2), 1e9), 2), slow=True),
    Row("one dimension", "right scales, every sampler", partial(right_scales, normal(np.ones(1)), 1), slow=True),
    Row("300 dimensions", "AdaptiveMetropolis, FastKameleon and Kamiltonian (by its random walk) go on", many_dimensions, slow=True),
    Row("a posterior of sd 1e-300", "warning: 300 proposals after tuning were rejected in a row: the chain stands still", tiny),
    Row("a posterior of sd 1e300", "warning: 300 proposals after tuning were accepted in a row", huge),
    Row("a rotated normal, standard deviations 1e-8, 1, 1 (covariance of condition 1e16)", "right scales along its axes", rotated),
    Row("Ctrl-C in pm.sample, one process, at random draws", "the draws so far are returned, as by PyMC; the step can be used again", ctrl_c_sequential),
    Row("Ctrl-C in pk.sample while drawing", "the draws so far are returned, the same bits; attribute `stopped='interrupted'`", ctrl_c_pooled),
    Row("Ctrl-C in pk.sample while tuning", "KeyboardInterrupt; with checkpoint= the same call goes on, the same bits", ctrl_c_pooled_while_tuning),
    Row("no space left for a checkpoint", "OSError: No space left on device; the same call goes on once there is, the same bits", disk_full),
    Row("a file system of 8 kB, for a checkpoint; a full one, for save_state", "OSError: No space left on device; once there is room the same call goes on without evaluating again what was kept, the same bits; the saved state that was there stays", partial(limited, "disk"), slow=True),
    Row("512 MB of memory; a black box that asks for more", "KamiltonianStep samples; MemoryError with the point and the black box; with checkpoint= the same call goes on, the same bits", partial(limited, "memory"), slow=True),
    Row("a worker of an executor is killed", "BrokenExecutor, with what to do; with checkpoint= the same call goes on, the same bits", partial(worker_killed, 40), slow=True),
    Row("... while the chains draw", "the same", partial(worker_killed, 140), slow=True),
    Row("... of an executor that pk.sample can make anew", "it is made anew; the same bits", worker_killed_and_made_anew, slow=True),
    Row("an evaluation in a worker hangs", "with timeout=: submitted once more, then TimeoutError with the point", hangs, slow=True),
    Row("Ctrl-C in pm.sample, two processes", "the draws so far of both chains are returned, as by PyMC", ctrl_c_parallel, slow=True),
    Row("a process of pm.sample is killed", "PyMC raises, and the other process ends too; what pk.sample(checkpoint=) evaluates is kept", chain_killed, slow=True),
]  # fmt: skip


def page() -> str:
    """docs/faults.md."""
    lines = [
        "# Faults",
        "",
        f"What goes wrong, and what is seen: {len(ROWS)} rows, each a test. Made from the tests by `python -m "
        "tests.public.faults`.",
        "",
        "| fault | seen |",
        "|---|---|",
        *(f"| {row.fault} | {row.seen} |" for row in ROWS),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
