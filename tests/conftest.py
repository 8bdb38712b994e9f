"""How this suite decides what is right.

1. Identities (formula against oracle, fast path against slow path, derivative against difference, reversibility,
   log_q_ratio(x -> y) = -log_q_ratio(y -> x)): tolerance from floating point, rtol=1e-10 (1e-6 for differences), in
   d = 1, 2 and 5.
2. Statistics: a fixed seed; compare (estimate - truth) / standard error and accept |z| < 4.5 (7e-6 per comparison,
   two-sided). The standard error comes from independent chains, never from a formula that assumes a chain's draws
   independent. No bare atol.
3. Power: every statistical test has a negative control (ratio dropped, metric at the wrong point, tuning not frozen)
   that must give |z| > 10, or that is xfail(strict=True). Sizes are chosen by the control, not by patience.
4. Rates rather than values for approximations.
5. No network: whatever asks for an address that is not this machine's fails (tests/public/test_no_network.py).
6. Graphs are compiled for Python in the fast suite (:func:`linker`), but where the linker is part of what is tested or
   a chain is long: compiling costs more than most tests' draws.
7. Never: seeds from the date, unseeded choices, retries, a test without an assertion, a skip that CI cannot turn into
   a failure.
"""

import gc
import os
import sys

# One BLAS thread per process: the matrices are small, and the chains are what runs in parallel.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import matplotlib

matplotlib.use("Agg")

import functools

import pytensor
import pytest
from pytensor.compile.mode import Mode, predefined_modes
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.link.c import op as c_op

from pymc_kameleon.samplers.kamiltonian.factors import learning
from pymc_kameleon.samplers.kamiltonian.values import worth

# Where a variable was made is found out from the stack, and where its C code lies from the disk (PyTensor 2, at every
# transposition): together a seventh of building a model and compiling it.
pytensor.config.traceback__limit = 0
c_op.ExternalCOp.get_path = classmethod(functools.cache(c_op.ExternalCOp.get_path.__func__))

# What is asked of pytest but for slow suites
FAST = ("not slow and not whole", "whole and not slow", "whole", "not slow")

# What PyTensor makes of a step and of a model, as a user has it; and thousands of gradients.
DEFAULT_LINKER = {
    "test_bad_input",
    "test_failing_boxes",
    "test_log_density",
    "test_sample_black_boxes",
    "test_textbook",
}

# Half of what compiling for Python costs is rewriting the graph, and half of that these; draws are no slower without.
# Where next to nothing is drawn, hardly any are worth it.
LESS = predefined_modes["FAST_COMPILE"].excluding("ShapeOpt", "specialize", "BlasOpt")
HARDLY = Mode(LESS.linker, RewriteDatabaseQuery(include=["merge", "useless", "py_only"]))
HARDLY_CALLED = {
    "test_alike", "test_batched", "test_black_boxes", "test_coordinates", "test_scales_in_graph", "test_probe",
    "test_targets", "test_written_apart",
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def linker(request):
    """Python's but in the slow suite, PyTensor's own there and for the modules above."""
    name = request.module.__name__.rsplit(".", 1)[-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(predefined_modes, "FAST_COMPILE", HARDLY if name in HARDLY_CALLED else LESS)
        if name in DEFAULT_LINKER or request.config.getoption("-m") not in FAST:
            yield
        else:
            with pytensor.config.change_flags(mode="FAST_COMPILE"):
                yield


# What chains that learn together do, and when; not how well they mix. Four fifths of their arithmetic is trying arms.
_free_chains, _free_run = worth.free_chains, learning.free_run
SHORT_TRIALS = {"test_pooled", "test_sample", "test_ways_to_run", "test_checkpoint", "test_batched"}


@pytest.fixture(autouse=True, scope="module")
def short_trials(request):
    """A quarter as long but in the slow suite, in the modules above; in all no fit to black boxes tries long."""

    def shorter(rng, dynamics, arm, length, chains):
        return _free_chains(rng, dynamics, arm, max(4, length // 4), chains)

    def shorter_run(rng, known, surface, v, length):
        return _free_run(rng, known, surface, v, min(length, 130))  # of 121 on it tells a correlation

    with pytest.MonkeyPatch.context() as patch:
        if request.config.getoption("-m") in FAST:
            patch.setattr(learning, "free_run", shorter_run)
            if request.module.__name__.rsplit(".", 1)[-1] in SHORT_TRIALS:
                patch.setattr(worth, "free_chains", shorter)
        yield


@pytest.fixture
def whole_trials(monkeypatch):
    """For one test of how well they mix."""
    monkeypatch.setattr(worth, "free_chains", _free_chains)
    monkeypatch.setattr(learning, "free_run", _free_run)


@pytest.fixture
def default_linker():
    """For one test with a long chain."""
    with pytensor.config.change_flags(mode="Mode"):
        yield


LOCAL = ("localhost", "127.0.0.1", "::1", "0.0.0.0", "::", "", None, os.uname().nodename)


def refuse_network(event, arguments):
    """An audit hook: connections and look-ups of names that leave this machine raise."""
    if event == "socket.getaddrinfo" or event == "socket.gethostbyname":
        host = arguments[0]
    elif event in ("socket.connect", "socket.sendto"):
        host = arguments[1][0] if isinstance(arguments[1], tuple) else None
    else:
        return
    host = host.decode() if isinstance(host, bytes) else host
    if host not in LOCAL:
        raise RuntimeError(f"a test asks the network for {host!r}")


sys.addaudithook(refuse_network)


# Two workers have half the tests each, in this order: one the samplers, whose Numba kernels take longest to compile,
# and the other, from within the steps, hardly any of them.
FIRST = ("samplers", "surrogates")
FIRST_OF_PUBLIC = ("test_sample.", "test_checkpoint", "test_control_variates", "test_plots", "test_ways_to_run")


def rank(item):
    folder, name = item.path.parent.name, item.path.name
    return 0 if folder in FIRST or name.startswith(FIRST_OF_PUBLIC) else 1 if folder == "steps" else 2


def pytest_collection_modifyitems(items):
    items.sort(key=rank)


def pytest_collection_finish(session):
    """What is imported stays: a garbage collection need not look at it again, which compiling graphs causes often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
