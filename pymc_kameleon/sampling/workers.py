"""Where the points of a round are evaluated: here, or by any ``concurrent.futures.Executor``.

The compiled log density travels once to every worker, as bytes with their digest: a task carries the digest alone, and
a worker that does not know it says so and gets the bytes. Points go in as many parts as there are workers. What comes
back depends on the points and on the number of each evaluation, and on nothing else.

:func:`evaluate` is a plain function in an importable module, which is what mpi4py's executor needs.
"""

import hashlib
import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from pymc_kameleon.steps.noise.demands import seed_streams

START = 1e-4  # seconds that a thread takes to begin an evaluation

_here = threading.local()  # in a worker: the log density that this thread knows, by its digest
_sent: dict[str, tuple[str, bytes]] = {}  # in a process: the last that came, for its other threads


class Failure(NamedTuple):
    """What a worker says of a log density that raised."""

    error: Exception


def evaluate(digest: str, density: bytes | None, points, numbers, entropy) -> list | None:
    """In a worker: the log densities at ``points``; None where it does not know the log density.

    Where black boxes are learned one by one, arrays: a log density, and what they returned.

    Parameters
    ----------
    digest : str
        Of the pickled log density.
    density : bytes or None
        That itself, if it is sent.
    points : list of ndarray of shape (d,)
    numbers : list of int
        Of each evaluation in the run: its noise depends on that and on ``entropy``.
    entropy : int or None
        None if there is no noise.
    """
    known = _here.__dict__.setdefault("known", {})
    if digest not in known:
        if density is not None:
            _sent["last"] = digest, density  # in one step: other threads read it
        else:
            name, density = _sent.get("last", (None, None))
            if name != digest:
                return None
        known.clear()
        known[digest] = cloudpickle.loads(density)
    return evaluate_with(known[digest], points, numbers, entropy)


def evaluate_with(density, points, numbers, entropy) -> list:
    """The log densities at ``points`` by ``density``, or failures; see :func:`evaluate`."""
    values: list = []
    for x, number in zip(points, numbers, strict=True):
        if entropy is not None:
            # the streams of one evaluation: the same wherever it is made
            stream = np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(number,)))
            seed_streams(density.noise_cells(), stream)
        try:
            value = float(density(np.array(x)))  # a copy: what dask unpacks is not aligned
            outputs = getattr(density, "outputs", None)
            values.append(value if outputs is None else np.concatenate([[value], outputs]))
        except Exception as error:
            values.append(Failure(_portable(error)))
    return values


def _portable(error):
    """The exception itself where it survives the trip, else its text."""
    try:
        cloudpickle.loads(cloudpickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


class EvaluationError(RuntimeError):
    """Carries a point from a worker; the model's own exception is its cause."""

    def __init__(self, point: np.ndarray, error: Exception):
        super().__init__(f"the log density raised {type(error).__name__} at {point.tolist()}")
        self.point, self.error = point, error


class Engine:
    """Evaluates points.

    Attributes
    ----------
    excuse : callable
        Says of a point at which the log density raised what stands there instead; None where that ends the run.
    """

    excuse: Callable[[np.ndarray], Any] = staticmethod(lambda point: None)

    def checked(self, points: Sequence[np.ndarray], found: list) -> list:
        """What was found, if no point that matters raised."""
        for k, value in enumerate(found):
            if isinstance(value, Failure):
                found[k] = self.excuse(points[k])
                if found[k] is None:
                    raise EvaluationError(points[k], value.error) from value.error
        return found


class Here(Engine):
    """Evaluates in this process, one point after the other.

    Parameters
    ----------
    density : callable with ``noise_cells``
        The log density.
    entropy : int or None
        Of its noise, if it has any.
    """

    def __init__(self, density, entropy: int | None):
        self.density, self.entropy = density, entropy

    def __call__(self, points: Sequence[np.ndarray], first: int) -> list[float]:
        """The log densities at ``points``, the evaluations ``first``, ``first`` + 1, ... of the run."""
        found = []
        for number, point in enumerate(points, first):  # one that raises ends the run at once
            found += self.checked([point], evaluate_with(self.density, [point], [number], self.entropy))
        return found


class Vectorized(Engine):
    """Evaluates all points of a round in one call.

    Parameters
    ----------
    density : callable
        The log density at one point, (d,).
    batched : callable
        The same at many, (n, d) -> (n,), or (n, 1 + n_o) with what black boxes return.
    """

    def __init__(self, density, batched: Callable[[np.ndarray], np.ndarray]):
        self.density, self.batched = density, batched
        self.compared = False

    def __call__(self, points: Sequence[np.ndarray], first: int) -> list[float]:
        """As of :class:`Here`."""
        try:
            values = self.batched(np.array(points))
        except Exception as error:
            found = evaluate_with(self.density, points, range(len(points)), None)
            if any(isinstance(value, Failure) for value in found):
                return self.checked(points, found)
            raise error from None  # no single point raises
        if values.ndim == 0 or len(values) != len(points) or values.ndim > 1 + hasattr(self.density, "alone"):
            raise ValueError(
                f'executor="vectorized": {len(points)} points have log densities of shape {values.shape}. A black box '
                "in the model mixes them: see BatchedBlackBox."
            )
        if len(points) > 1 and not self.compared:  # once, with an evaluation that is not counted
            self._compare(points[-1], np.atleast_1d(values[-1])[0])
            self.compared = True
        return values.tolist() if values.ndim == 1 else list(values)

    def _compare(self, point, value):
        alone = self.density(np.array(point))
        # sums in another order round differently
        if not np.allclose(value, alone, rtol=1e-6, atol=1e-6, equal_nan=True):
            raise ValueError(
                f'executor="vectorized": the log density at {point.tolist()} is {value} in a batch and {alone} by '
                "itself. A black box in the model computes something else for a batch."
            )


class Elsewhere(Engine):
    """Evaluates by an executor.

    Parameters
    ----------
    density, entropy
        As of :class:`Here`.
    executor : Executor, distributed.Client, or a callable that makes one
        With a callable, an executor whose worker died is made anew.
    timeout : float, optional
        Seconds for each point of a part of a round: where none has come back for so long, what lacks is submitted a
        second time, and then given up.

    Attributes
    ----------
    meanwhile : callable, optional
        Called while a round is evaluated, with a function that says whether that is over.
    """

    def __init__(self, density, entropy: int | None, executor, timeout: float | None = None):
        try:
            self.density = cloudpickle.dumps(density)
        except Exception as error:
            error.add_note(
                "The log density is sent to the workers, threads too, as a pickle. What wrap_py makes is found again "
                "as the function that it wraps, by name: use it as a decorator, at the top of a module (solve = "
                "wrap_py(...)(f) is not found there as f), or leave executor= out."
            )
            raise
        self.digest = hashlib.blake2b(self.density, digest_size=16).hexdigest()
        self.entropy, self.timeout = entropy, timeout
        self.meanwhile: Callable[[Callable[[], bool]], None] | None = None
        self.factory: Callable[[], Any] | None = None
        if not hasattr(executor, "submit"):
            if not callable(executor):
                raise TypeError(
                    "executor must have a method submit (concurrent.futures, loky, dask, mpi4py) or be a callable "
                    f"that makes one, got {executor!r}."
                )
            self.factory, executor = executor, executor()
            if not hasattr(executor, "submit"):
                raise TypeError(
                    f"executor is a callable that has to make an executor, with a method submit; it made {executor!r}."
                )
        self._use(executor)

    def _use(self, executor):
        if hasattr(executor, "get_executor"):  # a dask client; pure=True would answer from a cache
            executor = executor.get_executor(pure=False)
        self.executor: Executor = executor
        self.workers = count_workers(executor)
        self.sent = 0  # how often the workers have been given the log density

    def __call__(self, points: Sequence[np.ndarray], first: int) -> list[float]:
        """As of :class:`Here`."""
        for rebuilds in range(4):
            try:
                return self._evaluate(points, first)
            except BrokenExecutor as error:
                if self.factory is None or rebuilds == 3:
                    error.add_note(
                        "A worker died. Give pk.sample(executor=...) a callable that makes an executor, and it is made "
                        "anew; pk.sample(checkpoint=...) goes on from the last round."
                    )
                    raise
                self._use(self.factory())
        raise AssertionError

    def _evaluate(self, points, first):
        parts = _parts(len(points), self.workers)
        # As often as there are workers, then only to one that says it has not got it: the executor does not say which
        # took what, and where it does not even say how many there are, that has to be enough.
        send = self.sent < min(self.workers, 4 * len(parts))
        futures = [self._submit(points, first, part, send) for part in parts]
        self.sent += len(parts) if send else 0
        if self.meanwhile is not None:
            time.sleep(START * len(parts))  # threads of this process begin first: the interpreter is one
            self.meanwhile(lambda: all(future.done() for future in futures))
        found = self._gathered(futures, points, first, parts)
        return self.checked(points, [value for values in found for value in values])

    def _gathered(self, futures, points, first, parts):
        """What every part's future brings; a part is submitted again at once by a worker that lacks the log density."""
        ended: queue.SimpleQueue[Future] = queue.SimpleQueue()
        found: list[Any] = [None] * len(parts)
        waiting: dict[Future, int] = {}
        patience = self.timeout and self.timeout * max(len(points[part]) for part in parts)

        def wait(future, k):
            waiting[future] = k
            future.add_done_callback(lambda _: ended.put(future))

        for k, future in enumerate(futures):
            wait(future, k)
        late = False
        while any(values is None for values in found):
            try:
                future = ended.get(timeout=patience)
            except queue.Empty:
                lacking = [k for k, values in enumerate(found) if values is None]
                if late:
                    raise self._timed_out([points[parts[k]] for k in lacking]) from None
                late = True
                for future, k in list(waiting.items()):
                    if future.cancel():
                        del waiting[future]  # else whichever ends first
                    wait(self._submit(points, first, parts[k], send=True), k)
                continue
            k = waiting.pop(future, None)
            if k is None or found[k] is not None:
                continue
            found[k] = future.result()
            if found[k] is None:
                wait(self._submit(points, first, parts[k], send=True), k)
        return found

    def _submit(self, points, first, part, send) -> Future:
        numbers = list(range(first, first + len(points)))[part]
        density = self.density if send else None
        return self.executor.submit(evaluate, self.digest, density, list(points[part]), numbers, self.entropy)

    def _timed_out(self, points) -> TimeoutError:
        error, where = TimeoutError(), [p.tolist() for part in points for p in part]
        error.add_note(
            f"No log density within {self.timeout} s, twice, at one of {where}. It is not taken for zero, which would "
            "bias the draws."
        )
        return error


def count_workers(executor) -> int:
    """How many points ``executor`` evaluates at a time, as far as it says; else many."""
    client = getattr(executor, "_client", None)
    if client is not None and hasattr(client, "nthreads"):
        return max(1, sum(client.nthreads().values()))
    for name in ("_max_workers", "num_workers"):
        count = getattr(executor, name, None)
        if isinstance(count, int) and count > 0:
            return count
    return 1024


def _parts(n, workers):
    size = max(1, math.ceil(n / workers))
    return [slice(begin, begin + size) for begin in range(0, n, size)]
