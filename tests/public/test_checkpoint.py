"""A killed run goes on with the same bits, wherever it was killed, and nothing is evaluated twice but one point."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from pymc_kameleon import checkpoint
from pymc_kameleon.checkpoint import ROUNDS, Checkpoint
from pymc_kameleon.samplers.pooled import chains as pooled_chains
from pymc_kameleon.samplers.pooled.chains import Chains, Plan
from pymc_kameleon.targets import Banana

TARGET = Banana(0.03, 100.0, 3)
HEADER = {"chains": 4, "dim": 3}


def opened(folder, seed=7, **header):
    return Checkpoint(folder, HEADER | header, seed, seed or 99, 3)


def run(folder, pause=0.0):
    """The draws, and how many evaluations were made."""
    calls = 0

    def evaluate(points, first):
        nonlocal calls
        calls += len(points)
        time.sleep(pause)
        return [TARGET.numba_log_density(x) for x in points]

    kept = opened(folder)
    starts = np.random.default_rng(0).standard_normal((4, 3))
    chains = Chains(np.zeros(3), starts, np.random.SeedSequence(7), Plan(None, None, 60, 140))
    while not chains.done:
        points = [request.position for request in chains.ask()]
        chains.tell(kept.evaluate(evaluate, points, chains.evaluated.size))
    return pooled_chains.posterior(chains), calls


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return run(folder)[0], (folder / ROUNDS).read_bytes()


@pytest.fixture
def finished(tmp_path, undisturbed):
    """A folder of its own with the whole run."""
    opened(tmp_path)
    (tmp_path / ROUNDS).write_bytes(undisturbed[1])
    return tmp_path


def test_whatever_was_written_is_enough(tmp_path, undisturbed):
    """Cut off at any byte: what is left of a row or a round is dropped, and the rest is not evaluated again."""
    draws, data = undisturbed
    opened(tmp_path)
    for size in (*np.random.default_rng(1).integers(0, len(data), 3), len(data)):
        (tmp_path / ROUNDS).write_bytes(data[:size])
        kept = len(opened(tmp_path).evaluations.log_densities)
        assert kept * 8 * 5 == (tmp_path / ROUNDS).stat().st_size > size - 8 * 5 * 4  # one round at most
        found, calls = run(tmp_path)
        assert found.tobytes() == draws.tobytes()
        assert (tmp_path / ROUNDS).read_bytes() == data
        assert (kept + calls) * 8 * 5 == len(data)


def test_another_run_is_refused(tmp_path):
    opened(tmp_path)
    with pytest.raises(ValueError, match="chains was 4, is 8"):
        opened(tmp_path, chains=8)
    with pytest.raises(ValueError, match="begun with random_seed=7, and this is random_seed=8"):
        opened(tmp_path, 8)
    assert opened(tmp_path, None).seed == 7  # no seed given: the stored one


def test_another_log_density_or_other_points_are_refused(finished):
    kept = opened(finished)
    kept.verify(lambda points, first: [TARGET.numba_log_density(x) for x in points])
    with pytest.raises(ValueError, match="another log density: at"):
        kept.verify(lambda points, first: [TARGET.numba_log_density(x) + 0.1 for x in points])
    with pytest.raises(RuntimeError, match="round 0 asks for other points"):
        opened(finished).recall([np.ones(3)])


def test_its_evaluations_can_be_had(finished, undisturbed):
    found = checkpoint.load(finished)
    assert found.size * 8 * 5 == len(undisturbed[1])
    assert found.log_densities[-1] == TARGET.numba_log_density(found.positions[-1])
    assert json.loads((finished / "run.json").read_text())["seed"] == 7


@pytest.mark.slow
def test_sigkill_at_random_moments(tmp_path, undisturbed):
    script = f"import tests.public.test_checkpoint as t; print('go', flush=True); t.run({str(tmp_path)!r}, pause=0.02)"
    rng = np.random.default_rng(3)
    killed = 0
    for _ in range(5):
        child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        child.stdout.readline()
        time.sleep(rng.uniform(0.05, 0.6))
        os.kill(child.pid, signal.SIGKILL)
        killed += child.wait() == -signal.SIGKILL
        child.stdout.close()
    assert killed == 5
    assert 0 < (tmp_path / ROUNDS).stat().st_size < len(undisturbed[1])
    draws, _ = run(tmp_path)
    assert draws.tobytes() == undisturbed[0].tobytes()
    assert (tmp_path / ROUNDS).read_bytes() == undisturbed[1]
