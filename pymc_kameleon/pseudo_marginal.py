"""Log densities that are noisy: an unbiased likelihood estimator inside a model, and what follows from having one.

A Metropolis-Hastings step whose likelihood is an unbiased *estimate* is exact if the estimate at the current state is
kept until a proposal is accepted (Beaumont, 2003; Andrieu & Roberts, 2009). The contract here: all randomness of a log
density comes from generators that PyTensor can see, as it does with :class:`NoisyLogLikelihood`, with ``pt.random.*``
in a Potential, and with ``pm.Simulator``. A step then gives itself streams of its own, reseeded for every chain.

References
----------
M. A. Beaumont (2003). Estimation of population growth or decline in genetically monitored populations. Genetics 164.
C. Andrieu, G. O. Roberts (2009). The pseudo-marginal approach for efficient Monte Carlo computations. Ann. Statist. 37.
G. Deligiannidis, A. Doucet, M. K. Pitt (2018). The correlated pseudo-marginal method. J. R. Statist. Soc. B 80.
M.-N. Tran, R. Kohn, M. Quiroz, M. Villani (2016). The block pseudo-marginal sampler. arXiv:1603.02485.
"""

import logging
import random
import weakref
from collections.abc import Callable
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.model.core import modelcontext
from pymc.util import get_value_vars_from_user_vars
from pytensor.graph import Apply, Op
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.graph.traversal import ancestors

from pymc_kameleon.steps.pytensor_internals import (
    RNGConsumerOp,
    compiling_step,
    copy_generator,
    find_rng_nodes,
    model_without,
    referred_to,
    register_rewrite,
)

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

    Notes
    -----
    Only this package's steps sample such a model exactly. PyMC's own steps evaluate the log density at the current
    state anew at every draw: with a log-estimate noise of sd 1.5 a standard normal target comes out with sd 1.33.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_kameleon as pk
    >>> def log_estimate(rng, x):  # a likelihood N(0; x, 1) with lognormal noise of mean 1
    ...     return -0.5 * x**2 + 0.5 * rng.standard_normal() - 0.125
    >>> with pm.Model() as model:
    ...     x = pm.Flat("x")
    ...     likelihood = pm.Potential("likelihood", pk.NoisyLogLikelihood(log_estimate)(x))
    """

    __props__ = ("fn", "auxiliary_shape", "inplace")
    default_output = 1

    def __init__(
        self,
        fn: Callable[..., float],
        auxiliary_shape: tuple[int, ...] | None = None,
        inplace: bool = False,
    ):
        if not callable(fn):
            raise TypeError(f"fn must be callable as fn(rng, *parameters), got {fn!r}.")
        self.fn, self.inplace = fn, inplace
        self.auxiliary_shape = None if auxiliary_shape is None else tuple(auxiliary_shape)
        if inplace:
            self.destroy_map = {0: [0]}

    def __eq__(self, other):
        """The same ``fn``: not an equal one, which an estimator that is a dataclass with arrays could not say."""
        return type(self) is type(other) and self._identity == other._identity

    def __hash__(self):
        return hash(self._identity)

    @property
    def _identity(self):
        return type(self), id(self.fn), self.auxiliary_shape, self.inplace

    def __call__(self, *parameters, rng=None, **kwargs):
        """The log estimate as a scalar variable; every call has a random stream of its own."""
        if rng is None:
            rng = pytensor.shared(np.random.default_rng(), name="noise")
        return super().__call__(rng, *parameters, **kwargs)

    def make_node(self, rng, *parameters):
        """Inputs: the stream and the parameters. Outputs: the advanced stream and the log estimate."""
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
        outputs[1][0] = _number(self.fn, self.fn(source, *parameters))

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
    value = np.asarray(value, dtype=np.float64)
    if value.ndim:
        raise TypeError(
            f"the estimator {_name_of(fn)} of a NoisyLogLikelihood returned an array of shape {value.shape}; it has to "
            "return a number, the log of one likelihood estimate."
        )
    return value


def _name_of(fn) -> str:
    return getattr(fn, "__qualname__", type(fn).__qualname__)


@node_rewriter([NoisyLogLikelihood])
def _noisy_log_likelihood_inplace(fgraph, node):
    """Let the compiled function advance its stream in place instead of copying it at every evaluation."""
    op = node.op
    if op.inplace:
        return False
    return (
        NoisyLogLikelihood(op.fn, op.auxiliary_shape, inplace=True).make_node(*node.inputs).outputs
    )


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
        "the likelihood depends on to one step of pymc_kameleon, and build steps of other variables with "
        "pymc_kameleon.pseudo_marginal.step_beside_noise."
    )
    return False


register_rewrite(
    "noisy_log_likelihood_in_other_steps",
    _warn_other_steps,
    "fast_run",
    "fast_compile",
    position=50.90,
)
register_rewrite(
    "noisy_log_likelihood_inplace",
    _noisy_log_likelihood_inplace,
    "fast_run",
    "inplace",
    position=50.91,  # after PyTensor's own random variables
)


class Noise(NamedTuple):
    """The noisy factors of a model and the two parts of its log density.

    Attributes
    ----------
    factors : list
        The model's random variables and potentials whose log density draws random numbers.
    deterministic, noisy : TensorVariable or None
        The sums of the two kinds of factors; ``None`` when nothing is noisy.
    """

    factors: list
    deterministic: Any
    noisy: Any


def find_noise(model, step_owns) -> Noise:
    """Find the noisy factors; refuse a step that does not own every variable that they depend on.

    Another step that moves a variable of the noisy factor makes the kept estimate belong to another point, and a fresh
    one would bias the chain.

    Raises
    ------
    ValueError
        Naming the factor, and the variables that would have to be in the same step.
    """
    factors, terms, noisy = _factors(model)
    if not any(noisy):
        return Noise([], None, None)
    value_vars, owned = set(model.value_vars), set(step_owns)
    for factor, term, is_noisy in zip(factors, terms, noisy, strict=True):
        depends_on = {v for v in ancestors([term]) if v in value_vars} if is_noisy else set()
        if depends_on - owned:
            raise ValueError(
                f"The log density of {factor.name!r} is a noisy estimate that also depends on "
                f"{_names(depends_on - owned)}, which this step does not sample. The estimate at the current state "
                "has to be kept, so one step has to own every variable it depends on: pass them all to that step "
                "(vars=...), and build a step of other variables with pymc_kameleon.pseudo_marginal.step_beside_noise."
            )
    parts = [
        sum((t for t, n in zip(terms, noisy, strict=True) if n is kind), start=pt.constant(0.0))
        for kind in (False, True)
    ]
    return Noise([f for f, n in zip(factors, noisy, strict=True) if n], *parts)


def _factors(model) -> tuple[list, list, list[bool]]:
    """The model's factors, their log densities, and whether these are noisy."""
    factors = model.free_RVs + model.observed_RVs + model.potentials
    terms = [term.sum() for term in model.logp(factors, sum=False)]
    return factors, terms, [bool(find_rng_nodes([term])) for term in terms]


def black_boxes(model) -> list[str]:
    """Names of the model's factors that run code that is neither PyTensor's nor PyMC's: the ones that may raise."""
    factors, terms, _ = _factors(model)
    return [
        factor.name
        for factor, term in zip(factors, terms, strict=True)
        if any(v.owner is not None and not _of_host(v.owner.op) for v in ancestors([term]))
    ]


def _of_host(op) -> bool:
    return type(op).__module__.startswith(("pytensor.", "pymc."))


def _names(variables) -> str:
    return ", ".join(sorted(v.name for v in variables))


def step_beside_noise(step, vars, *, model=None, **options):
    """Build a step, of PyMC's or of this package's, for variables that no noisy factor of the model depends on.

    A step of PyMC evaluates the whole log density, noisy factors too, anew at every draw. They do not depend on its
    variables, but their noise does not cancel either: ``pm.NUTS`` or ``pm.Metropolis`` beside a noisy likelihood
    sample a posterior that is too wide, and pay for estimates. The step built here leaves those factors out, which
    changes nothing but a constant.

    Parameters
    ----------
    step : type
        E.g. ``pm.NUTS``, ``pm.Metropolis``, ``pm.BinaryGibbsMetropolis``, ``AdaptiveMetropolisStep``.
    vars : list of variables
    model : pymc.Model, optional
        Default: the model on the context stack.
    options
        The step's.

    Raises
    ------
    ValueError
        Naming the factor, if a noisy one depends on one of ``vars``.

    Examples
    --------
    >>> import pymc as pm, pymc_kameleon as pk
    >>> from pymc_kameleon.pseudo_marginal import step_beside_noise
    >>> def log_estimate(rng, x):
    ...     return -0.5 * x**2 + 0.5 * rng.standard_normal() - 0.125
    >>> with pm.Model() as model:
    ...     x, k = pm.Flat("x"), pm.Poisson("k", 2.0)
    ...     likelihood = pm.Potential("likelihood", pk.NoisyLogLikelihood(log_estimate)(x))
    ...     steps = [pk.KameleonStep([x]), step_beside_noise(pm.Metropolis, [k])]
    """
    model = modelcontext(model)
    vars = get_value_vars_from_user_vars(vars, model)
    factors, terms, noisy = _factors(model)
    for factor, term, is_noisy in zip(factors, terms, noisy, strict=True):
        touched = set(vars) & set(ancestors([term])) if is_noisy else None
        if touched:
            raise ValueError(
                f"The log density of {factor.name!r} is a noisy estimate that depends on {_names(touched)}: a step of "
                "pymc_kameleon has to own them, together with all others it depends on."
            )
    noisy_factors = [f for f, n in zip(factors, noisy, strict=True) if n]
    return step(vars, model=model_without(model, noisy_factors), **options)


def noise_streams(outputs) -> list:
    """The shared random generators that ``outputs`` draw from, in a fixed order."""
    return find_rng_nodes(outputs)


def take_auxiliary(outputs) -> tuple[list, list]:
    """Make the standard normals of every estimator that has some an explicit shared input.

    Returns
    -------
    outputs : list
        Deterministic given those inputs.
    auxiliary : list of shared variables
        Zeros for now, one an estimator.

    Raises
    ------
    ValueError
        If there is noise that is not of this kind, or none at all.
    """
    replacements: dict = {}
    auxiliary: list = []
    for variable in ancestors(outputs):
        node = variable.owner
        if node is None or not isinstance(node.op, NoisyLogLikelihood):
            continue
        if node.op.auxiliary_shape is None or variable is not node.outputs[1]:
            continue
        u = pytensor.shared(np.zeros(node.op.auxiliary_shape), name=f"auxiliary_{len(auxiliary)}")
        replacements[variable] = GivenAuxiliary(node.op.fn)(u, *node.inputs[1:])
        auxiliary.append(u)
    if replacements:
        outputs = clone_replace(outputs, replacements)
    if not auxiliary or find_rng_nodes(outputs):
        raise ValueError(
            "correlation= and refresh_blocks= need a model all of whose noise comes from "
            "NoisyLogLikelihood(fn, auxiliary_shape=...), an estimator that is a function of standard normals; "
            f"{'some of the noise here is of another kind' if auxiliary else 'there is none here'}."
        )
    return outputs, auxiliary


def hidden_generators(outputs) -> list[str]:
    """Names of black-box Ops in the graph that seem to draw random numbers from a generator PyTensor cannot see.

    Found by looking at what an Op and its functions hold or refer to, without an evaluation; a generator behind
    compiled code stays hidden. A generator that a function makes anew from a seed of its own is no noise.
    """
    suspects: list[str] = []
    operations = {id(v.owner.op): v.owner.op for v in ancestors(outputs) if v.owner is not None}
    for op in operations.values():
        looked_at = [*vars(op).values()] + ([] if _of_pymc(op) else [type(op).perform])
        if any(_holds_generator(value) for value in looked_at) and str(op) not in suspects:
            suspects.append(str(op))
    return suspects


GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
_MAKERS = (np.random.default_rng, np.random.RandomState, random.Random)


def _holds_generator(value, depth=3) -> bool:
    if isinstance(value, GENERATORS):
        return True
    if depth == 0 or isinstance(value, (str, bytes, int, float, np.ndarray, type, ModuleType)):
        return False
    if type(value).__module__.startswith("scipy.stats"):  # a distribution holds NumPy's global one
        return False
    return any(_holds_generator(part, depth - 1) for part in _parts(value))


def _parts(value) -> list:
    """What ``value`` holds or, if it is a function, refers to."""
    if isinstance(value, FunctionType):
        return _referred_to(value)
    if isinstance(value, MethodType):
        return [value.__self__, *_parts(value.__func__)]
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, dict):
        return list(value.values())
    parts = [*getattr(value, "__dict__", {}).values()]
    if hasattr(value, "__self__"):  # a built-in method: np.random.normal belongs to a RandomState
        parts.append(value.__self__)
    call = getattr(type(value), "__call__", None)  # noqa: B004
    if isinstance(call, FunctionType) and not _of_pymc(value):
        parts += _referred_to(call)
    return parts


def _of_pymc(value) -> bool:
    return type(value).__module__.startswith(("pytensor.", "pymc.", "pymc_kameleon."))


def _referred_to(function: FunctionType) -> list:
    """Defaults, variables of enclosing scopes and globals of a Python function; attributes of modules are followed."""
    found = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for value, called in referred_to(function):
        found.append(value)
        if called and any(value is maker for maker in _MAKERS):
            found.append(value())  # without a seed: a generator that differs every time
    return [value for value in found if value is not function]
