"""What little memory or a small disk does to a run, in processes of their own, which tests.public.faults starts.

    python -m tests.public.limited disk FOLDER       # FOLDER is a file system of 8 kB, which this may make larger
    python -m tests.public.limited memory FOLDER     # with 512 MB for data

Each asserts what is seen and prints ``as said``.
"""

import logging
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

import pymc_kameleon as pk
from pymc_kameleon import checkpoint
from tests.public.faults import QUICK, Counted, ends_and_goes_on, pooled_sample, quadratic
from tests.step_tester import begin, drive, sample

LIMIT = 512 * 2**20


def disk(folder: Path) -> None:
    """A checkpoint, and a saved state, on a disk that fills up."""
    whole = pooled_sample(quadratic)["posterior"]["x"].values
    with pytest.raises(OSError, match="No space left on device"):
        pooled_sample(quadratic, checkpoint=folder / "run")
    kept = checkpoint.load(folder / "run").size
    assert 50 < kept < 160
    subprocess.run(["mount", "-o", "remount,size=100k", str(folder)], check=True)
    evaluated = Counted(-1, None)
    again = pooled_sample(evaluated, checkpoint=folder / "run")["posterior"]["x"].values
    assert again.tobytes() == whole.tobytes()
    assert evaluated.calls <= 160 - kept + 1  # the rest, and one at the start
    _saved_state(folder)


def _saved_state(folder):
    with pm.Model() as model:
        pm.Normal("x")
        step = pk.AdaptiveMetropolisStep(compile_kwargs=QUICK)
    drive(begin(step), model.initial_point(), 5)
    pk.save_state(step, folder / "state")
    before = (folder / "state").read_bytes()
    with pytest.raises(OSError, match="No space left on device"):
        (folder / "ballast").write_bytes(bytes(10**6))
    with pytest.raises(OSError, match="No space left on device"):
        pk.save_state(step, folder / "state")
    assert (folder / "state").read_bytes() == before
    assert sorted(p.name for p in folder.iterdir()) == ["ballast", "run", "state"]


def memory(folder: Path) -> None:
    """A run, and a black box that asks for more than there is."""
    with pm.Model():
        pm.Normal("x", shape=5)
        step = pk.KamiltonianStep(compile_kwargs=QUICK)
        idata = sample(step, None, draws=500, tune=1000)
    assert abs(np.log(idata["posterior"]["x"].values.std())) < 0.3
    asks = Counted(90, lambda: np.ones(LIMIT))
    error, kept = ends_and_goes_on(folder, MemoryError, asks)
    assert "was evaluating the log density" in " ".join(error.__notes__)
    assert kept > 60


def start(what: str, folder: Path) -> None:
    """Run one of them in a process of its own, with little of what it is about."""
    command = [sys.executable, "-m", "tests.public.limited", what, str(folder)]
    limits = None
    if what == "disk":  # in namespaces of its own: nobody else sees the file system
        mounted = f'mount -t tmpfs -o size=8k none "{folder}" && exec "$@"'
        unshared = ["unshare", "--user", "--map-root-user", "--mount"]
        command = [*unshared, "sh", "-c", mounted, "sh", *command]
    else:
        limits = _limited
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limits)
    assert done.stdout.strip().endswith("as said"), done.stdout + done.stderr


def _limited():
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))


if __name__ == "__main__":
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    logging.getLogger("pymc").setLevel(logging.ERROR)
    {"disk": disk, "memory": memory}[sys.argv[1]](Path(sys.argv[2]))
    print("as said")
