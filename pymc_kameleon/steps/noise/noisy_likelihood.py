"""The Op of a noisy log likelihood: its random stream, its work, its normals, and what happens to it at compilation."""

import inspect
import logging
import weakref
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph import Apply, Op
from pytensor.graph.rewriting.basic import node_rewriter

from pymc_kameleon.steps.pytensor_internals import RNGConsumerOp, compiling_step, copy_generator, register_rewrite

_log = logging.getLogger("pymc.kameleon")


class NoisyLogLikelihood(RNGConsumerOp):
    """The logarithm of an unbiased likelihood estimate, for a ``pm.Potential``.

    Parameters
    ----------
    fn : callable
        ``fn(rng, *parameters) -> float``: the log of an unbiased estimate of the likelihood, all of whose randomness
        comes from the ``numpy.random.Generator`` it is given. The *likelihood* has to be unbiased, not its logarithm:
        average the weights, then take the logarithm. Picklable, for parallel chains. -inf where the estimate is zero;
        NaN to reject a point where the simulator fails (an exception ends the run).
    auxiliary_shape : tuple of int, optional
        If given, ``fn(u, *parameters)`` gets an array of this shape of independent standard normals instead of the
        generator. A step may then correlate those of successive draws (``correlation=``, ``refresh_blocks=``).
    work : int, optional
        N, how many particles, simulations or importance draws to begin with: ``fn(rng, *parameters, work=N)`` is then
        told how many to use. While tuning, this package's steps raise or lower N, chain by chain and to between a
        hundredth and a hundred times what is given, until the sd of the log estimate along the chain is some 1.2 to 1.5
        (Doucet, Pitt, Deligiannidis & Kohn, 2015, section 3.4), but below what is given only while no pair of estimates
        late in tuning differs by more; afterwards it is fixed. They log what they chose, and have the statistics
        ``work`` and ``work_spent`` (``noise_sd`` they have without it, too). Estimators of one model are raised and
        lowered by one factor.
        Whatever else evaluates the model takes N as given, :func:`pymc_kameleon.sample` included. Not together with
        ``auxiliary_shape``. Default: the estimator's own business.
    inplace : bool
        PyTensor's, which sets it while it compiles.

    Raises
    ------
    TypeError
        If ``fn`` cannot be called, or takes no ``work`` although it is given; when it is applied to parameters, if it
        does not take as many.
    ValueError
        If ``work`` or ``auxiliary_shape`` is not made of positive integers, or both are given.

    Notes
    -----
    Only this package's steps sample such a model exactly. PyMC's own steps evaluate the log density at the current
    state anew at every draw: with a log-estimate noise of sd 1.5 a standard normal target comes out with sd 1.34.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_kameleon as pk
    >>> def log_estimate(rng, x):  # a likelihood N(0; x, 1) with lognormal noise of mean 1
    ...     return -0.5 * x**2 + 0.5 * rng.standard_normal() - 0.125
    >>> with pm.Model() as model:
    ...     x = pm.Flat("x")
    ...     likelihood = pm.Potential("likelihood", pk.NoisyLogLikelihood(log_estimate)(x))

    An estimate from simulations, whose number is tuned:

    >>> def importance(rng, x, work):
    ...     z = rng.normal(x, 1.0, size=work)
    ...     return float(np.log(np.mean(np.exp(-0.5 * ((z - 1.3) / 0.2) ** 2)) + 1e-300))
    >>> with pm.Model() as model:
    ...     x = pm.Normal("x", 0.0, 2.0)
    ...     likelihood = pm.Potential("likelihood", pk.NoisyLogLikelihood(importance, work=50)(x))
    """

    __props__ = ("fn", "auxiliary_shape", "inplace", "work")
    default_output = 1

    def __init__(
        self, fn: Callable[..., float], auxiliary_shape: tuple[int, ...] | None = None, inplace: bool = False, *,
        work: int | None = None,
    ):  # fmt: skip
        if not callable(fn):
            raise TypeError(f"fn must be callable as fn(rng, *parameters), got {fn!r}.")
        self.work = None if work is None else _work(work, fn, auxiliary_shape)
        self.fn, self.inplace = fn, inplace
        self.auxiliary_shape = None if auxiliary_shape is None else _shape(auxiliary_shape)
        if inplace:
            self.destroy_map = {0: [0]}

    def __eq__(self, other):
        """The same ``fn``: not an equal one, which an estimator that is a dataclass with arrays could not say."""
        return type(self) is type(other) and self._identity == other._identity

    def __hash__(self):
        return hash(self._identity)

    @property
    def _identity(self):
        return type(self), id(self.fn), self.auxiliary_shape, self.inplace, self.work

    def __call__(self, *parameters, rng=None, **kwargs):
        """The log estimate as a scalar variable; every call has a random stream, and work, of its own."""
        _check_call(self.fn, len(parameters), self.work)
        if rng is None:
            rng = pytensor.shared(np.random.default_rng(), name="noise")
        if self.work is not None:
            parameters = (pytensor.shared(np.asarray(self.work, "int64"), name="work"), *parameters)
        return super().__call__(rng, *parameters, **kwargs)

    def make_node(self, rng, *parameters):
        """Inputs: the stream, the work if there is one, the parameters. Outputs: the advanced stream, the estimate."""
        return Apply(self, [rng, *map(pt.as_tensor, parameters)], [rng.type(), pt.dscalar()])

    def update(self, node):
        """The stream advances with every evaluation."""
        return {node.inputs[0]: node.outputs[0]}

    def perform(self, node, inputs, outputs):
        """Evaluate ``fn``."""
        rng, *parameters = inputs
        if not self.inplace:  # 20 us; the rewrite below does away with it in compiled functions
            rng = copy_generator(rng)
        source = rng if self.auxiliary_shape is None else rng.standard_normal(self.auxiliary_shape)
        outputs[0][0] = rng
        more = {}
        if self.work is not None:
            work, *parameters = parameters
            more["work"] = int(work)
        outputs[1][0] = _number(self.fn, self.fn(source, *parameters, **more))

    def do_constant_folding(self, fgraph, node):
        """Never: the noise would be frozen when the function is compiled."""
        return False


class GivenAuxiliary(Op):
    """A :class:`NoisyLogLikelihood` whose standard normals are an input: deterministic, for steps that own them."""

    __props__ = ("fn",)

    def __init__(self, fn):
        self.fn = fn

    def __eq__(self, other):
        return type(self) is type(other) and self.fn is other.fn

    def __hash__(self):
        return hash((type(self), id(self.fn)))

    def make_node(self, auxiliary, *parameters):
        """Inputs: the standard normals and the parameters. Output: the log estimate."""
        return Apply(self, [auxiliary, *map(pt.as_tensor, parameters)], [pt.dscalar()])

    def perform(self, node, inputs, outputs):
        """Evaluate ``fn``."""
        auxiliary, *parameters = inputs  # part of the chain's state: ``fn`` may sort its own copy
        outputs[0][0] = _number(self.fn, self.fn(auxiliary.copy(), *parameters))

    def do_constant_folding(self, fgraph, node):
        """Never: the auxiliary variables are set from outside."""
        return False


def _number(fn, value) -> np.ndarray:
    array = np.asarray(np.nan if value is None else value, dtype=np.float64)
    if value is None or array.ndim:
        what = "None: a return is missing" if value is None else f"an array of shape {array.shape}"
        raise TypeError(
            f"the estimator {_name_of(fn)} of a NoisyLogLikelihood returned {what}; it has to return a number, the log "
            "of one likelihood estimate."
        )
    return array


def _is_positive(number) -> bool:
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool) and number >= 1


def _shape(given) -> tuple[int, ...]:
    shape = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    if not all(map(_is_positive, shape)):
        raise ValueError(f"auxiliary_shape must be a tuple of positive integers, got {given!r}.")
    return tuple(map(int, shape))


def _work(given, fn, auxiliary_shape) -> int:
    if not _is_positive(given):
        raise ValueError(f"work must be a positive integer, got {given!r}.")
    if auxiliary_shape is not None:
        raise ValueError(
            f"work={given} is tuned, and auxiliary_shape={auxiliary_shape!r} has a size that does not change: give one "
            "of the two."
        )
    with suppress(ValueError):  # of some built-in functions nothing is known
        takes = inspect.signature(fn).parameters.values()
        named = any(p.name == "work" and p.kind not in _BY_PLACE for p in takes)
        if not named and all(p.kind is not p.VAR_KEYWORD for p in takes):
            raise TypeError(
                f"work={given} was given, and the estimator {_name_of(fn)} does not take it: it has to be callable as "
                "fn(rng, *parameters, work=N)."
            )
    return int(given)


def _check_call(fn, parameters: int, work) -> None:
    """That ``fn`` takes what it will be given, before anything is sampled."""
    named = {} if work is None else {"work": work}
    with suppress(ValueError):
        signature = inspect.signature(fn)
        try:
            signature.bind(None, *[None] * parameters, **named)
        except TypeError as error:
            given = f"the generator, {parameters} parameter{'s' * (parameters != 1)}" + f", work={work}" * bool(named)
            more = ". Work is given by NoisyLogLikelihood(fn, work=N)" if not named and "'work'" in str(error) else ""
            raise TypeError(
                f"the estimator {_name_of(fn)}{signature} cannot be called with {given}: {error}{more}."
            ) from None


_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)


def _name_of(fn) -> str:
    return getattr(fn, "__qualname__", type(fn).__qualname__)


@node_rewriter([NoisyLogLikelihood])
def _noisy_log_likelihood_inplace(fgraph, node):
    """Let the compiled function advance its stream in place instead of copying it at every evaluation."""
    op = node.op
    if op.inplace:
        return False
    return NoisyLogLikelihood(op.fn, op.auxiliary_shape, inplace=True, work=op.work).make_node(*node.inputs).outputs


_warned: list = []  # the step that was last warned about, as a weak reference


@node_rewriter([NoisyLogLikelihood])
def _warn_other_steps(fgraph, node):
    """Changes nothing: whoever compiles an estimate is looked at, and a step that will not keep it is warned about.

    At compilation, because that happens in the main process and before anything is sampled. What else evaluates a
    model (its start, predictions, ``compute_log_likelihood``) is not a step and goes by unnoticed.
    """
    step = compiling_step()
    known = _warned and _warned[-1]() is step
    if step is None or known or getattr(step, "keeps_estimates", False):
        return False
    _warned[:] = [weakref.ref(step)]
    _log.warning(
        f"{type(step).__name__} evaluates the noisy log likelihood {_name_of(node.op.fn)} anew at every draw and so "
        "samples a posterior that is too wide, however good its effective sample size looks. Give the variables that "
        "the likelihood depends on to one step of this package, as step=pymc_kameleon.KamiltonianStep(), and build "
        "steps of other variables with pymc_kameleon.pseudo_marginal.step_beside_noise."
    )
    return False


# after PyTensor's own random variables
for _name, _rewriter, _tag, _position in (
    ("in_other_steps", _warn_other_steps, "fast_compile", 50.90),
    ("inplace", _noisy_log_likelihood_inplace, "inplace", 50.91),
):
    register_rewrite(f"noisy_log_likelihood_{_name}", _rewriter, "fast_run", _tag, position=_position)
