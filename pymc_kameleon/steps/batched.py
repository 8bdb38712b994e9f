"""Many points in one call: a black box that takes a batch, and a model's log density of shape (n, d) -> (n,)."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.pytensorf import join_nonshared_inputs
from pytensor.graph import Apply, Op
from pytensor.graph.replace import vectorize_graph

from pymc_kameleon.steps.log_density import compile_log_density
from pymc_kameleon.steps.pytensor_internals import register_vectorized

SHAPES = r"\(([\w\s,]*)\)"


class BatchedBlackBox(Op):
    """A function without a gradient that computes many points at a time, as an Op of a model.

    ``pm.sample`` and the steps call it with a batch of one. ``pk.sample(executor="vectorized")`` calls it once for all
    chains.

    Parameters
    ----------
    fn : callable
        ``fn(*arrays) -> array``, or a tuple of arrays: every argument and every result has one axis more than the
        signature says, in front, of the length of the batch. NumPy, or JAX under ``jax.vmap`` and ``jax.jit``, on any
        device. NaN where the simulator fails. Picklable, for parallel chains.
    signature : str
        What goes in and out for one point, as of ``numpy.vectorize``: ``"(),(k)->(t)"`` is a scalar and a vector in, a
        vector out. Names stand for lengths, and say only how many axes there are.

    Raises
    ------
    ValueError
        If the signature cannot be read; while sampling, if a result has not the axes that it says.
    TypeError
        If ``fn`` cannot be called, or the arguments do not fit the signature.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_kameleon as pk
    >>> times = np.linspace(0.0, 4.0, 9)
    >>> def decay(amplitude, rate):  # (n,), (n,) -> (n, 9)
    ...     return amplitude[:, None] * np.exp(-rate[:, None] * times)
    >>> with pm.Model() as model:
    ...     amplitude, rate = pm.HalfNormal("amplitude"), pm.HalfNormal("rate")
    ...     mean = pk.BatchedBlackBox(decay, "(),()->(t)")(amplitude, rate)
    ...     seen = pm.Normal("seen", mean, 0.1, observed=np.exp(-times))
    """

    __props__ = ("fn", "signature")

    def __init__(self, fn: Callable[..., Any], signature: str):
        if not callable(fn):
            raise TypeError(f"fn must be callable as fn(*arrays), got {fn!r}.")
        self.fn, self.signature = fn, signature
        sides = signature.split("->") if isinstance(signature, str) else []
        pattern = rf"\s*{SHAPES}(\s*,\s*{SHAPES})*\s*"
        if len(sides) != 2 or not all(re.fullmatch(pattern, side) for side in sides):
            raise ValueError(
                f'signature must look like "(),(k)->(t)" (inputs and outputs of one point), got {signature!r}.'
            )
        self.inputs, self.outputs = (
            [len(s.split(",")) if s.strip() else 0 for s in re.findall(SHAPES, side)] for side in sides
        )

    def make_node(self, *inputs) -> Apply:
        """One point, or a batch where an argument has one axis more than the signature says."""
        arguments = [pt.as_tensor_variable(a) for a in inputs]
        over = [a.type.ndim - n for a, n in zip(arguments, self.inputs, strict=False)]
        if len(arguments) != len(self.inputs) or not set(over) <= {0, 1}:
            raise TypeError(
                f"{self}: the signature is {self.signature!r}, and the arguments have "
                f"{[a.type.ndim for a in arguments]} axes."
            )
        batch = max(over, default=0)
        return Apply(self, arguments, [pt.tensor(dtype="float64", shape=(None,) * (n + batch)) for n in self.outputs])

    def perform(self, node, inputs, output_storage):
        """Call ``fn``; a single point is a batch of one."""
        batched = [np.ndim(a) > n for a, n in zip(inputs, self.inputs, strict=True)]
        size = next((len(a) for a, is_batch in zip(inputs, batched, strict=True) if is_batch), 1)
        arrays = [
            a if is_batch else np.broadcast_to(a, (size, *np.shape(a)))
            for a, is_batch in zip(inputs, batched, strict=True)
        ]
        found = self.fn(*arrays)
        found = found if isinstance(found, tuple) else (found,)
        shapes = [np.shape(f) for f in found]
        if len(found) != len(self.outputs) or any(
            len(s) != n + 1 or s[0] != size for s, n in zip(shapes, self.outputs, strict=False)
        ):
            raise ValueError(
                f"{self}: for a batch of {size} it returned arrays of shape {shapes}, where the signature "
                f"{self.signature!r} wants a first axis of {size}, and {[n + 1 for n in self.outputs]} axes."
            )
        for cell, value in zip(output_storage, found, strict=True):
            array = np.asarray(value, dtype="float64")
            cell[0] = array if any(batched) else np.asarray(array[0])  # C code takes no scalar of NumPy's

    def __str__(self):
        return f"BatchedBlackBox({getattr(self.fn, '__name__', self.fn)})"


register_vectorized(BatchedBlackBox, lambda op, node, *arguments: op.make_node(*arguments))


def batched_log_density(model, variables, initial_point, compile_kwargs=None) -> Callable:
    """The model's log density at many points, (n, d) -> (n,), of all its value variables in the order of the vector.

    Refused if PyTensor cannot vectorise something in the model (a ``scan``, say).
    """
    outputs, joined = join_nonshared_inputs(initial_point, [model.logp()], variables, {})
    function = vectorized(joined, outputs, compile_kwargs)
    return lambda x: function(x)[0]


def vectorized(joined, outputs: list, compile_kwargs=None) -> Callable[[np.ndarray], list[np.ndarray]]:
    """``outputs`` of the vector ``joined`` for many of them: (n, d) -> arrays with one axis more in front."""
    points = pt.matrix("points", dtype=joined.dtype)
    try:
        values = vectorize_graph(outputs, replace={joined: points})
    except (NotImplementedError, ValueError, TypeError) as error:
        raise ValueError(
            f'executor="vectorized": PyTensor cannot compute this model for many points at a time ({error}). Use an '
            "executor with workers, or executor=None."
        ) from error
    function = compile_log_density([points], values, compile_kwargs)

    def evaluate(x):
        found = function(np.asarray(x, dtype=joined.dtype))
        return [np.asarray(f, dtype=float) for f in (found if len(values) > 1 else [found])]

    return evaluate
