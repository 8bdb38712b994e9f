"""A killed run goes on with the same bits, wherever it was killed, and nothing is evaluated twice but one point."""

import itertools
import json
import math
import os
import signal
import subprocess
import sys

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


def run(folder, killed_at=10**9):
    """The draws, and how many evaluations were made; this process is killed by the given one."""
    calls = 0

    def evaluate(points, first):
        nonlocal calls
        calls += len(points)
        if calls >= killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
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
    for size in (*np.random.default_rng(1).integers(0, len(data), 2), len(data)):
        (tmp_path / ROUNDS).write_bytes(data[:size])
        kept = sum(map(len, opened(tmp_path).rounds))
        assert kept * 8 * 5 == (tmp_path / ROUNDS).stat().st_size > size - 8 * 5 * 4  # one round at most
        found, calls = run(tmp_path)
        assert found.tobytes() == draws.tobytes()
        assert (tmp_path / ROUNDS).read_bytes() == data
        assert (kept + calls) * 8 * 5 == len(data)


@pytest.mark.parametrize("size", [0.0, -3.0, math.nan, math.inf])
def test_a_round_of_no_size_is_cut_off_with_what_follows(finished, undisturbed, size):
    data = np.frombuffer(undisturbed[1], "<f8").reshape(-1, 5).copy()
    row = int(data[0, 0])  # where the second round begins
    data[row, 0] = size
    (finished / ROUNDS).write_bytes(data.tobytes())
    assert [len(r) for r in opened(finished).rounds] == [row]
    assert (finished / ROUNDS).stat().st_size == 8 * 5 * row


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


def test_a_last_point_that_raised_is_not_evaluated_again(tmp_path):
    """In a look it may, and ends no run."""

    def raises(points, first):
        raise ZeroDivisionError

    kept = opened(tmp_path)
    kept.append([np.zeros(3)], [math.nan])
    opened(tmp_path).verify(raises)
    kept.append([np.zeros(3)], [0.5])
    with pytest.raises(ZeroDivisionError):
        opened(tmp_path).verify(raises)


def test_its_evaluations_can_be_had(finished, undisturbed):
    found = checkpoint.load(finished)
    assert found.size * 8 * 5 == len(undisturbed[1])
    assert found.log_densities[-1] == TARGET.numba_log_density(found.positions[-1])
    assert json.loads((finished / "run.json").read_text())["seed"] == 7


def test_reading_changes_nothing(finished):
    """The run may still be going, and its last round half written."""
    rounds = finished / "rounds.f8"
    rounds.write_bytes(rounds.read_bytes()[:-8])
    before = rounds.read_bytes()
    assert checkpoint.load(finished).size * 8 * 5 < len(before)
    assert rounds.read_bytes() == before


def test_a_damaged_header_is_named_and_can_be_made_anew(finished, undisturbed):
    header = finished / "run.json"
    whole = header.read_text()
    for left, read in itertools.product((whole[: len(whole) // 2], "{}", "[]"), (opened, checkpoint.load)):
        header.write_text(left)
        with pytest.raises(ValueError, match=r"run\.json is damaged .* keep a copy of that, delete run\.json"):
            read(finished)
    header.unlink()
    assert sum(map(len, opened(finished).rounds)) * 8 * 5 == len(undisturbed[1])
    assert header.read_text() == whole


def test_a_file_is_no_folder(tmp_path):
    file = tmp_path / "run"
    file.touch()
    with pytest.raises(FileExistsError, match=r"checkpoint is a folder, .* is a file"):
        opened(file)


@pytest.mark.slow
def test_sigkill(tmp_path, undisturbed):
    """What is written is written, whatever becomes of the process."""
    sizes = [0]
    for calls in (30, 60):
        script = f"from tests.public.test_checkpoint import run; run({str(tmp_path)!r}, {calls})"
        assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
        sizes.append((tmp_path / ROUNDS).stat().st_size)
    assert sizes[0] < sizes[1] < sizes[2] < len(undisturbed[1])
    draws, calls = run(tmp_path)
    assert draws.tobytes() == undisturbed[0].tobytes()
    assert sizes[2] + calls * 8 * 5 == len(undisturbed[1])
