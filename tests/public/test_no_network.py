"""Nothing of this package asks the network: not at import, not in a step, not in the demo; nor does a test.

The tests' own process is watched by :func:`tests.conftest.refuse_network`.
"""

import socket
import subprocess
import sys

import pytest

WATCHED = """
import sys
def watch(event, arguments):
    if event.startswith("socket.") and event not in ("socket.gethostname",):
        # asyncio and multiprocessing make pairs of sockets; what is connected to or looked up is what counts
        if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.bind"):
            print("ASKED", event, arguments[1:], file=sys.stderr)
            raise RuntimeError(event)
sys.addaudithook(watch)
"""
STEP = """
import numpy as np, pymc as pm, pymc_kameleon as pk
with pm.Model() as model:
    x = pm.Normal("x")
    step = pk.KamiltonianStep(compile_kwargs={"mode": "FAST_COMPILE"})
point = model.initial_point()
for _ in range(20):
    point, _ = step.step(point)
"""
DEMO = """
import sys
from pymc_kameleon.__main__ import main
main(["--draws", "60", "--tune", "120", "--chains", "2", "--cores", "1", "--no-patients", "--out", sys.argv[1]])
"""


def in_a_watched_process(code, *arguments):
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WATCHED + code, *arguments], capture_output=True, text=True, check=False
    )  # fmt: skip


@pytest.mark.slow
def test_neither_the_import_nor_a_step_asks_the_network():
    done = in_a_watched_process(STEP)
    assert done.returncode == 0, done.stderr
    assert "ASKED" not in done.stderr


@pytest.mark.slow
def test_the_demo_does_not(tmp_path):
    done = in_a_watched_process(DEMO, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "ASKED" not in done.stderr


def test_who_asks_is_noticed():
    done = in_a_watched_process("import socket; socket.create_connection(('192.0.2.1', 9), timeout=1)")
    assert "ASKED" in done.stderr
    assert done.returncode != 0
    with pytest.raises(RuntimeError, match=r"a test asks the network for .192\.0\.2\.1."):
        socket.create_connection(("192.0.2.1", 9), timeout=1)
    with pytest.raises(RuntimeError, match=r"a test asks the network for 'example\.org'"):
        socket.getaddrinfo("example.org", 80)


def test_this_machine_may_be_asked():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()
