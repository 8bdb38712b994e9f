"""The table of bad input: what is given, and what is said. ``python -m tests.public.bad_input`` writes docs/bad_input.md.

A row is a test (:mod:`tests.public.test_bad_input`). ``says`` is a part of the error or the warning, with … for what
depends on the case; where nothing is wrong, it says what happens. Options are refused before anything is compiled.
"""

import math
import re
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.exceptions import SamplingError
from pymc.step_methods.compound import CompoundStep
from pytensor.compile.ops import wrap_py

import pymc_kameleon as pk
from pymc_kameleon import checkpoint
from tests.step_tester import begin, drive, sample
from tests.support.hierarchies import BlackBox

PAGE = Path(__file__).parents[1].parent / "docs" / "bad_input.md"
QUICK = {"mode": "FAST_COMPILE"}
DEFAULT = None  # a user's


def named(name):
    """A model of one variable, of that name."""
    with pm.Model() as made:
        pm.Normal(name)
    return made


class Row(NamedTuple):
    """What the user writes, and what does it: ``call`` returns the warnings; without an ``error`` it works."""

    given: str
    call: Callable[[], Any]
    error: type | tuple[type, ...] | None
    says: str


# --- what the rows stand on ---------------------------------------------------------------------------


def flat_from_the_prior():
    with pm.Model():
        pm.Normal("y", pm.Flat("x"), observed=0.0)
        return pk.sample(initvals="prior", step=pk.KamiltonianStep(compile_kwargs=QUICK))


def short_of_dims():
    with pm.Model(coords={"place": ["a", "b", "c"]}):
        z = pm.Normal("z", dims="place")
        return pk.sample(chains=2, initvals={z.name: np.zeros(2)}, step=pk.KamiltonianStep(compile_kwargs=QUICK))


@cache
def model():
    with pm.Model() as model:
        pm.Normal("x", 0.0, 1.0, shape=2)
        pm.Normal("y", 0.0, 1.0)
    return model


def model_of(*makers):
    """A model of the variables that these make."""
    with pm.Model() as made:
        for maker in makers:
            maker()
    return made


@cache
def pooled_step():
    return pk.KamiltonianStep(model=model(), learn="all", compile_kwargs=QUICK)


def option(step, error, says, **options):
    """A row for an option of a step."""
    return Row(f"{step.__name__}({_given(options)})", lambda: step(model=model(), **options), error, says)


def learner(kind, error, says, **options):
    """A row for an option of KamiltonianStep's surrogate."""

    def call():
        return pk.KamiltonianStep(model=model(), surrogate=getattr(pk, kind)(**options))

    return Row(f"KamiltonianStep(surrogate=pk.{kind}({_given(options)}))", call, error, says)


def _given(options):
    return ", ".join(f"{name}={_shown(value)}" for name, value in options.items())


def _shown(value):
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}" + (" with NaN" if np.isnan(value).any() else "")
    return repr(value)


def pooled(error, says, shown=None, **options):
    """A row for an argument of pk.sample."""
    chosen = {"max_evaluations": 60, "chains": 2, "random_seed": 1, "progressbar": False}

    def call():
        return pk.sample(**{"model": model(), "step": pooled_step(), **chosen, **options})

    return Row(f"pk.sample({shown or _given(options)})", call, error, says)


def said_by(step, model, tune=0, draws=3):
    """The warnings of a chain."""
    _, stats = drive(begin(step), model.initial_point(), draws, tune)
    if not tune:
        return ""
    said = [s["warning"].message for s in stats if s["warning"] is not None]
    return " ".join([*said, f"nonfinite = {stats[-1]['nonfinite']:g}"])


def boxed(function, step=pk.AdaptiveMetropolisStep, tune=60, draws=150, how=QUICK, **options):
    """What a chain on a black box says, compiled as ``how`` says."""

    def call():
        with pm.Model() as model:
            x = pm.Normal("x", 0.0, 1.0, initval=0.5)
            pm.Potential("solver", Raw(function)(x))
            made = step(compile_kwargs=how, arrival=False, **options)
        return said_by(made, model, tune, draws)

    return call


class Raw(BlackBox):
    """Returns what the function returns, as it comes."""

    def perform(self, node, inputs, outputs):
        outputs[0][0] = self.function(*inputs)


def sometimes(value):
    """-x^2 / 2, and now and then ``value``."""
    calls = count(1)

    def function(x):
        if next(calls) != 25:
            return np.asarray(-0.5 * x**2)
        if isinstance(value, Exception):
            raise value
        return np.asarray(value)

    return function


def of_other_data():
    """A step that was made before ``pm.set_data``."""
    with pm.Model() as model:
        t, y = pm.Data("t", np.arange(4.0)), pm.Data("y", np.zeros(4))
        decay = wrap_py(itypes=[pt.dscalar, pt.dvector], otypes=[pt.dvector])(lambda k, t: np.exp(-k * t))
        pm.Normal("o", decay(pm.Normal("k"), t), observed=y)
        made = pk.KamiltonianStep(compile_kwargs=QUICK)
        pm.set_data({"t": np.arange(6.0), "y": np.zeros(6)})
    said_by(made, model)


def raises(x):
    raise RuntimeError("solver failed")


def half_nan(x):
    return np.asarray(-0.5 * x**2 if x > -0.5 else math.nan)


def in_place(x):
    x += 1.0
    return np.asarray(-0.5 * x**2)


def takes_work(rng, x, work):
    return 0.0


def noisy(function, **options):
    def call():
        with pm.Model() as model:
            x = pm.Normal("x", 0.0, 1.0, initval=0.5)
            pm.Potential("estimate", pk.NoisyLogLikelihood(function, **options)(x))
            step = pk.AdaptiveMetropolisStep(compile_kwargs=QUICK)
        return said_by(step, model, 10)

    return call


def unequal():
    """Two chains find different values at one point."""
    draw = iter(np.random.default_rng(0).standard_normal(99).tolist()).__next__

    def function(x):
        return np.asarray(-0.5 * x**2 + draw())

    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0, initval=0.5)
        pm.Potential("solver", Raw(function)(x))
        step = pk.AdaptiveMetropolisStep(compile_kwargs=QUICK, arrival=False)
    said = [drive(begin(step, seed), model.initial_point(), 3)[1] for seed in (0, 1)]
    return " ".join(s["warning"].message for s in said[1] if s["warning"] is not None)


def changed():
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0)
        step = pk.AdaptiveMetropolisStep(compile_kwargs=QUICK)
        pm.Normal("later", x, 1.0, observed=4.0)
    drive(begin(step), model.initial_point(), 1)


def of_no_values():
    return pm.Normal("z", 0.0, 1.0, shape=0)


def poisson():
    return pm.Poisson("k", 2.0)


def discrete():
    made = model_of(lambda: pm.Normal("x"), poisson)
    KAM(vars=[made["x"], made["k"]], model=made)


def two_steps():
    with model() as m:
        steps = [
            pk.AdaptiveMetropolisStep([m["x"]], compile_kwargs=QUICK),
            pk.AdaptiveMetropolisStep([m["x"], m["y"]], compile_kwargs=QUICK),
        ]
        compound = CompoundStep(steps)
    point, said = m.initial_point(), []
    for step in steps:
        begin(step)
    for _ in range(3):
        point, stats = compound.step(point)
        said += [s["warning"].message for s in stats if s["warning"] is not None]
    return " ".join(said)


def shortest():
    with model():
        step = pk.KameleonStep(compile_kwargs=QUICK)
        return sample(step, None, draws=1, tune=1, chains=1)["posterior"].sizes["draw"]


def no_tuning():
    with model() as m:
        step = pk.AdaptiveMetropolisStep(compile_kwargs=QUICK)
    begin(step).stop_tuning()
    _, [stats] = step.step(m.initial_point())
    return stats["warning"].message


AM, KAM, FAST, MIX = (pk.AdaptiveMetropolisStep, pk.KameleonStep, pk.FastKameleonStep, pk.GaussianMixtureStep)
KMC, GA, CMA = pk.KamiltonianStep, pk.GaussianAdaptationStep, pk.CMAStep
NAN, INF = math.nan, math.inf
NO_ARRAY = (TypeError, ValueError, AttributeError)  # PyTensor's linkers differ
DECLARED = "; it has to return a float64 number, as np.asarray(value, dtype='float64') of shape ()"

# --- the table ----------------------------------------------------------------------------------------

OPTIONS = [
    option(AM, ValueError, "target_accept must lie strictly between 0 and 1, got 1.5", target_accept=1.5),
    option(AM, TypeError, "target_accept must be a number, got 'high'", target_accept="high"),
    option(AM, TypeError, "learn_from_values must be True or False, got 'no'", learn_from_values="no"),
    option(AM, TypeError, "scale must be a number or None, got True", scale=True),
    option(AM, ValueError, "scaling must be one of ('learned', 'fixed'), got 'both'", scaling="both"),
    option(AM, ValueError, "initial_scale must be a number or have shape (3,), got an array of shape (2,)", initial_scale=np.ones(2)),
    option(AM, ValueError, "initial_scale must be positive and finite, got -1", initial_scale=-1),
    option(AM, ValueError, "exploration_share must lie in [0, 1), got 1", exploration_share=1),
    option(AM, ValueError, "tune must be an integer of at least 1, got 0", tune=0),
    option(AM, ValueError, "tune must be an integer or None, got 1000.0", tune=1000.0),
    option(AM, ValueError, "correlation must lie in [0, 1), got 1.0", correlation=1.0),
    option(AM, ValueError, "refresh_blocks must be a positive integer, got 0", refresh_blocks=0),
    option(AM, ValueError, "preset must be None or 'paper', got 'papers'", preset="papers"),
    option(AM, TypeError, "no option 'target_acept' (did you mean 'target_accept'?)", target_acept=0.3),
    option(AM, TypeError, "compile_kwargs must be a dict…or None, got 'NUMBA'", compile_kwargs="NUMBA"),
    option(KAM, ValueError, "n_history must be an integer of at least 2, got 1", n_history=1),
    option(KAM, ValueError, "kernel must be one of …'sinc_squared') or a Kernel, got 'gausian'", kernel="gausian"),
    option(KAM, ValueError, "kernel 'sinc' takes negative values", kernel="sinc"),
    option(KAM, ValueError, "lengthscale must be positive and finite, got 0", lengthscale=0),
    option(KAM, ValueError, "proposal must be one of ('full', 'pca'), got 'diagonal'", proposal="diagonal"),
    option(KAM, TypeError, "n_directions is an option of proposal='pca'", n_directions=3),
    option(KAM, ValueError, "local_start must be an integer of at least 0, got -1", local_start=-1),
    option(FAST, ValueError, "n_features must be…, got 0", n_features=0),
    option(FAST, ValueError, "variance_share must lie in (0, 1], got 0", variance_share=0),
    option(MIX, ValueError, "max_components must be an integer of at least 1, got 0", max_components=0),
    option(MIX, ValueError, "shares must be 4 probabilities…with sum 1", shares=(1.0, 1.0, 1.0, 1.0)),
    option(KMC, ValueError, "surrogate must be one of ('values', 'lite', 'finite'), got 'kernel'", surrogate="kernel"),
    learner("Values", ValueError, "growth must be above 1 and finite, got 1", growth=1),
    learner("Values", ValueError, "growth must be above 1 and finite, got inf", growth=INF),
    learner("Values", ValueError, "library is empty", library=()),
    learner("Values", ValueError, "companion_share must lie in [0, 1), got 1", companion_share=1),
    option(KMC, ValueError, "learn must be one of ('auto', 'all'), got 'some'", learn="some"),
    option(KMC, ValueError, "expensive must be a list of names…", expensive="solver"),
    option(KMC, ValueError, "expensive names black boxes to learn one by one", expensive=["x"], learn="all"),
    option(KMC, ValueError, "preset='paper' is for the paper's estimators", preset="paper"),
    option(KMC, TypeError, "lengthscale is an option of surrogate=pk.Lite(lengthscale=...) or surrogate=pk.Finite(lengthscale=...)", lengthscale=1.0),
    option(KMC, TypeError, "n_features is an option of surrogate=pk.Finite(n_features=...)", surrogate="lite", n_features=100),
    learner("Lite", ValueError, "n_leapfrog must be a range of positive integers, got (5, 2)", n_leapfrog=(5, 2)),
    learner("Lite", ValueError, "step_size must be a positive number or a range, got (0.2, 0.1)", step_size=(0.2, 0.1)),
    learner("Lite", ValueError, "lengthscale must be a number or have shape (3,)", lengthscale=np.ones(2)),
    option(GA, ValueError, "rate must lie strictly between 0 and 1, got 1", rate=1),
    option(GA, ValueError, "sweeps must be an integer of at least 0", sweeps=-1),
    option(CMA, ValueError, "initial_scale must be 3 positive numbers", initial_scale=np.zeros(3)),
    option(CMA, ValueError, "rate_factor must lie strictly between 0 and…, got -1.0", rate_factor=-1.0),
]  # fmt: skip

VARIABLES = [
    Row("vars=['x']", lambda: AM(vars=["x"], model=model()), TypeError,
        "vars takes variables, not their names: model['x'] in place of 'x'"),
    Row("vars=['nope']", lambda: AM(vars=["nope"], model=model()), TypeError,
        "vars takes variables, not their names; the model has no 'nope', but x, y"),
    Row("vars=[x, x]", lambda: AM(vars=[model()["x"]] * 2, model=model()), ValueError, "vars has x more than once"),
    Row("vars=[] of the model", lambda: AM(vars=[], model=model()), ValueError, "No free random variables to sample"),
    Row("vars of another model", lambda: AM(vars=[model_of(lambda: pm.Normal("x"))["x"]], model=model()), ValueError,
        "not random variables in the model: ['x']"),
    Row("a discrete variable among vars", discrete, ValueError, "samples continuous variables only; k is discrete"),
    Row("a variable of shape (0,) alone", lambda: AM(model=model_of(of_no_values)), ValueError, "found nothing to sample: z has shape (0,)"),
    Row("a variable of shape (0,) beside another", lambda: AM(model=model_of(of_no_values, lambda: pm.Normal("x")), compile_kwargs=QUICK).density.dim, None, "1"),
    Row("a model without variables", lambda: AM(model=model_of()), ValueError, "No free random variables to sample"),
    Row("a model with observed variables only", lambda: AM(model=model_of(lambda: pm.Normal("y", observed=1.0))), ValueError, "No free random variables to sample"),
    Row("a model with discrete variables only", lambda: AM(model=model_of(poisson)), ValueError, "found no continuous variable to sample"),
    Row("a step outside of a model", AM, TypeError, "No model on context stack"),
    Row("pk.sample() of a variable named chain", lambda: pk.sample(model=named("chain")), ValueError,
        "The model has a variable named chain, as ArviZ names a dimension: rename it"),
    Row("pk.sample(model=5)", lambda: pk.sample(model=5), ValueError, "model must be a Model or None, got 5"),
    Row("initial_point without y", lambda: AM(model=model(), initial_point={"x": np.zeros(2)}), ValueError, "initial_point has no y; it has x"),
    Row("initial_point with y of shape (3,)", lambda: AM(model=model(), initial_point={"x": np.zeros(2), "y": np.zeros(3)}), ValueError,
        "initial_point has y of shape (3,); the model's has ()"),
    Row("two steps on one variable", two_steps, None, "x is sampled by another step too. That is right but for a noisy log density"),
    Row("a model that grows after the step is built", changed, SamplingError, "was built before the model was complete (new: later)"),
    Row("pm.sample(tune=0)", no_tuning, None, "tune=0: nothing was learned"),
    Row("pm.sample(1, tune=1, chains=1)", shortest, None, "1"),
    Row("register('KameleonStep')", lambda: pk.register("KameleonStep"), TypeError, "register() takes a step's class"),
]  # fmt: skip

BOXES = [
    Row("a black box that returns a float32 array", boxed(lambda x: np.asarray(-0.5 * x**2, "float32"), how=DEFAULT), NO_ARRAY, f"Raw, the black box of 'solver', returned a float32 array of shape (){DECLARED}"),
    Row("… an int", boxed(lambda x: -int(x**2), how=DEFAULT), NO_ARRAY, f"returned a int{DECLARED}"),
    Row("… an array of shape (1,)", boxed(lambda x: np.array([-0.5 * x**2])), SamplingError,
        f"the log density has shape (1,) instead of (), which is no number. Raw, the black box of 'solver', returned a float64 array of shape (1,){DECLARED}"),
    Row("… None", boxed(lambda x: None, how=DEFAULT), NO_ARRAY, f"returned None{DECLARED}"),
    Row("… NaN at the start", boxed(lambda x: np.asarray(NAN)), SamplingError, "log density is nan at the chain's first point. Not finite there: solver = nan"),
    Row("… +inf at the start", boxed(lambda x: np.asarray(INF)), SamplingError, "log density is inf at the chain's first point. Not finite there: solver = inf"),
    Row("… NaN in half of the space", boxed(half_nan), None, "proposals after tuning have a log density of NaN or +inf, last solver = nan at x =…"),
    Row("… the same, KamiltonianStep", boxed(half_nan, KMC, learn="all"), None, "evaluations while tuning are NaN or +inf, last solver = nan at x =…"),
    Row("… +inf once", boxed(sometimes(INF)), None, "nonfinite = 1"),
    Row("… raises at the start", boxed(raises), RuntimeError, "solver failed…was evaluating the log density of 'solver', at {'x': 0.5}…it can return NaN instead of raising"),
    Row("… raises at random", boxed(sometimes(RuntimeError("no convergence"))), RuntimeError,
        "no convergence…was evaluating the log density of 'solver'…it can return NaN instead of raising"),
    Row("… different values at one point", unequal, None, "draw random numbers that PyTensor cannot see (values…at one point"),
    Row("… that writes into its argument", boxed(in_place), ValueError, "alters what it is given: coordinate 0 of the point was 0.5 before…and 1.5 after"),
    Row("… so, KamiltonianStep", boxed(in_place, KMC), ValueError, "alters what it is given"),
    Row("… of another length after pm.set_data, the same KamiltonianStep", of_other_data, ValueError,
        "black boxes returned 6 numbers, and 4 when the step was made…a new step is needed…it can return NaN instead of raising"),
    Row("NoisyLogLikelihood(5)", lambda: pk.NoisyLogLikelihood(5), TypeError, "fn must be callable as fn(rng, *parameters), got 5"),
    Row("… of an estimator that returns None", noisy(lambda rng, x: None), TypeError, "returned None: a return is missing"),
    Row("… that returns an array", noisy(lambda rng, x: np.zeros(2)), TypeError, "returned an array of shape (2,)"),
    Row("… that is NaN at the start", noisy(lambda rng, x: NAN), SamplingError, "Not finite there: estimate = nan"),
    Row("… auxiliary_shape='ab'", lambda: pk.NoisyLogLikelihood(lambda u, x: 0.0, auxiliary_shape="ab"), ValueError,
        "auxiliary_shape must be a tuple of positive integers, got 'ab'"),
    Row("… auxiliary_shape=(3, 0)", lambda: pk.NoisyLogLikelihood(lambda u, x: 0.0, auxiliary_shape=(3, 0)), ValueError,
        "auxiliary_shape must be a tuple of positive integers, got (3, 0)"),
    Row("… work=0", lambda: pk.NoisyLogLikelihood(takes_work, work=0), ValueError, "work must be a positive integer, got 0"),
    Row("… work=2.5", lambda: pk.NoisyLogLikelihood(takes_work, work=2.5), ValueError, "work must be a positive integer, got 2.5"),
    Row("… work=5, of an estimator without it", lambda: pk.NoisyLogLikelihood(lambda rng, x: 0.0, work=5), TypeError,
        "it has to be callable as fn(rng, *parameters, work=N)"),
    Row("… whose estimator asks for work, without work=", lambda: pk.NoisyLogLikelihood(takes_work)(1.0), TypeError,
        "takes_work(rng, x, work) cannot be called with the generator, 1 parameter: missing a required argument: 'work'. Work is given by NoisyLogLikelihood(fn, work=N)"),
    Row("… work=5, auxiliary_shape=(3,)", lambda: pk.NoisyLogLikelihood(takes_work, (3,), work=5), ValueError,
        "work=5 is tuned, and auxiliary_shape=(3,) has a size that does not change"),
]  # fmt: skip

POOLED = [
    pooled(ValueError, "draws must be a positive integer, got 0", draws=0),
    pooled(TypeError, "draws must be an integer or None, got True", draws=True),
    pooled(ValueError, "chains must be a positive integer, got 0", chains=0),
    pooled(ValueError, 'tune must be "auto" or a positive integer, got 0', tune=0),
    pooled(ValueError, "max_evaluations must be an integer or None, got 1000.0", max_evaluations=1000.0),
    pooled(ValueError, "max_evaluations must be at least 8 for 2 chains, got 5", max_evaluations=5),
    pooled(ValueError, "control_variates must be True or False, got 1.5", control_variates=1.5),
    pooled(ValueError, "target_ess must be positive and finite, got -5", target_ess=-5),
    pooled(ValueError, "target_ess must be a number or None, got nan", target_ess=NAN),
    pooled(ValueError, "timeout must be positive and finite, got -1", timeout=-1),
    pooled(TypeError, "progressbar must be True or False, got 'no'", progressbar="no"),
    pooled(ValueError, 'initvals must be "jitter", "prior", a dict or a list of dicts, got \'mode\'', initvals="mode"),
    pooled(ValueError, "initvals has y = nan, which is not finite", initvals={"y": NAN}),
    pooled(TypeError, "initvals has y = 'prior': a start is a number or an array of numbers", initvals={"y": "prior"}),
    pooled(ValueError, "initvals names 'z'; the model's variables are x, y", initvals={"z": 1.0}),
    pooled(ValueError, "initvals has y of shape (3,); the model's has ()", initvals={"y": np.zeros(3)}),
    pooled(ValueError, "initvals has 1 points for 2 chains", initvals=[{"y": 0.0}]),
    Row("pk.sample(initvals='prior') of a flat prior", flat_from_the_prior, ValueError,
        'initvals="prior": x cannot be drawn: flat'),
    Row("pk.sample(initvals={'z': array of shape (2,)}) where dims say 3", short_of_dims, ValueError,
        "initvals has z of shape (2,); the model's has (3,)"),
    pooled(TypeError, "pk.sample has no argument start: it is initvals=", start="prior"),
    pooled(TypeError, "pk.sample has no argument cores: give it workers: executor=…", cores=4),
    pooled(TypeError, "pk.sample has no argument compile_kwargs: give them to its step", compile_kwargs=QUICK),
    pooled(TypeError, "pk.sample has no argument nuts: it is for pm.sample", nuts={"target_accept": 0.9}),
    pooled(TypeError, "pk.sample has no argument chain: did you mean chains=?", chain=2),
    pooled(TypeError, "executor must have a method submit…", executor=5),
    pooled(TypeError, "a callable that has to make an executor", "executor=lambda: 5", executor=lambda: 5),
    pooled(ValueError, "random_seed must be None, an integer of at least 0", random_seed=-1),
    pooled(ValueError, "evaluations must be what pk.sample returned", evaluations=5),
    pooled(ValueError, "evaluations have 5 coordinates, and the model has 3", "evaluations of 5 coordinates",
           evaluations=(np.zeros((3, 5)), np.zeros(3))),
    pooled(ValueError, "evaluations have 3 points, none of them with a log density that is a number", "evaluations that are all NaN",
           evaluations=(np.zeros((3, 3)), np.full(3, NAN))),
    pooled(ValueError, "checkpoint must be text, a PathLike or None, got 5", checkpoint=5),
    pooled(TypeError, "idata_kwargs has nope; pm.to_inference_data has…", idata_kwargs={"nope": 1}),
    pooled(ValueError, "step must be a KamiltonianStep with surrogate='values', got the class KameleonStep itself", "step=KameleonStep", step=KAM),
    pooled(ValueError, "got KameleonStep: in a budget's few draws", "step=KameleonStep()", step=KAM(model=model())),
    pooled(TypeError, "idata_kwargs has model, save_warmup, trace; pm.to_inference_data has…",
           idata_kwargs={"trace": None, "model": None, "save_warmup": True}),
    Row("pk.sample(step=a step of another model)", lambda: pk.sample(model=model_of(lambda: pm.Normal("x")), step=pooled_step()), ValueError,
        "step is of another model"),
    Row("pk.report(None)", lambda: pk.report(None), ValueError, "report takes what pk.sample or pm.sample returned"),
    Row("checkpoint.load(an empty folder)", lambda: checkpoint.load("no such folder"), FileNotFoundError, "there is no run in…"),
]  # fmt: skip

SECTIONS = {
    "Options of the steps": OPTIONS,
    "Variables and models": VARIABLES,
    "Black boxes and estimators": BOXES,
    "pk.sample, pk.report": POOLED,
}


def page() -> str:
    """docs/bad_input.md."""
    lines = [
        "# Bad input",
        "",
        f"What is given, and what is seen: {sum(map(len, SECTIONS.values()))} rows, each a test. Options and arguments "
        "are refused before anything is",
        "compiled or evaluated, and what only the model can tell (names in `expensive=`, `evaluations=`, points in "
        "`initvals=`) once it is",
        "compiled, so that no draw is lost to them. Made from the tests by `python -m tests.public.bad_input`.",
    ]
    for title, rows in SECTIONS.items():
        lines += ["", f"## {title}", "", "| given | seen |", "|---|---|"]
        lines += [f"| {_cell(row.given)} | {_seen(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _seen(row):
    if row.error is not None:
        kinds = row.error if isinstance(row.error, tuple) else (row.error,)
        return f"{' or '.join(k.__name__ for k in kinds)}: {_text(row.says)}"
    if row.says.startswith("nonfinite"):
        return f"it samples: rejected, and counted in the statistic, {row.says}"
    if row.says == "1":
        return "it samples, and is right"
    return f"warning: {_text(row.says)}"


def _cell(given):
    return f"`{given}`" if "(" in given or "=" in given else given


def _text(says):
    return re.sub(r"\s*…\s*", " … ", says).replace(" … ,", " …,").strip().replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
