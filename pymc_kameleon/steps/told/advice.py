"""What a step says: why it refuses to start, and what is wrong with a run that goes on.

Sentences only: text to be formatted, and functions where they depend on more than values. Where and when each is said
stands in :mod:`.watch`; how it reaches the main process in :mod:`.sampler_warnings`; what is said of a surrogate in
:mod:`.surrogate_report`.
"""

import math

import numpy as np

from pymc_kameleon.samplers import noise_probe
from pymc_kameleon.samplers.noise_probe import NoiseProbe
from pymc_kameleon.samplers.tuned_work import Work

FAILING = 0.01  # share of the proposals after tuning without a usable log density that is worth a warning ...
FAILING_TUNING = 0.05  # the same while tuning, where chains of other temperatures look further out
TUNING = 400  # draws a dimension: with fewer the covariance is not learned (benchmarks/cold_start.py)
UNITS = "measure the parameters in units in which they are of the order of one"
STREAK = 300  # draws after tuning, all accepted or all rejected
FAILURES = 5  # ... and how many there have to be before that is said

TWO_THREADS = "{step} is making a draw already, in another thread: a step is one chain. Build a step for every thread."
NO_LOCK = (
    "{step} needs Python's global interpreter lock, and this free-threaded Python runs without: nothing of the "
    "package, nor PyTensor's compiled functions, is tested there. Start it with PYTHON_GIL=1 (or python -X gil=1)."
)
COMPILES = "The sampler compiles while it tunes: 20 s to a minute of a first run, which Numba's cache saves all others."
NO_TUNING = (
    "tune=0: nothing was learned, the draws come from the untuned proposal, and their effective sample size will "
    "be small. Give {step} some hundred tuning draws (pm.sample(tune=...))."
)
SAMPLED_TWICE = (
    "{variables} is sampled by another step too. That is right but for a noisy log density, whose "
    "estimate is then drawn anew at every draw, and costs an evaluation more: give each variable to one step."
)
# no noisy factor depends on the other steps' variables, and those steps are biased all the same
STEPS_BESIDE_NOISE = (
    "the log density is noisy, and the step that samples {variables} evaluates it anew at every "
    "draw, which biases it although no noisy factor depends on its variables. Build that step with "
    "pymc_kameleon.pseudo_marginal.step_beside_noise."
)
DID_NOT_ARRIVE = (
    "{evaluations} evaluations did not reach the typical set (the log density is {log_density:.4g} and may rise): the "
    "random walk goes on from there. Tune longer, give pm.sample(initvals=...) nearer to the posterior, or priors on "
    "the parameters' own scale."
)
SHORT_TUNING = (
    "{draws} tuning draws are few for {dim} dimensions; tune={wanted} or more "
    "lets the {learns} learn the posterior's shape, which is needless where pk.report finds enough effective draws."
)
TOO_MANY_DIMENSIONS = (
    "{dim} dimensions are more than a surrogate of the log density can be fitted in; sampling by "
    "adaptive Metropolis instead. FastKameleonStep or a model with fewer unknowns may do better."
)
FAILURES_AFTER_TUNING = "{failed} of {tried} proposals after tuning have a log density of NaN or +inf, {where}"
# the likeliest reason for whatever else went wrong
FAILURES_WHILE_TUNING = "{failed} of {tried} evaluations while tuning are NaN or +inf, {where}"
OTHER_STATE = (
    "{step} cannot go on from this sampling state: its {name} is {given}, and the step's "
    "is {mine}. Give it to a step of the same kind, variables and options as the one that it is from, in "
    "the same version of pymc_kameleon."
)
MISRETURNED = "{name}, the black box of {factor!r}, returned {found}; it has to return {has_to}."
ALWAYS_ACCEPTED = (
    f"{STREAK} proposals after tuning were accepted in a row: the moves are far shorter than the posterior is "
    f"wide. Tune longer, or {UNITS}."
)
NEVER_ACCEPTED = (
    f"{STREAK} proposals after tuning were rejected in a row: the chain stands still, where the posterior is far "
    "narrower than the moves are long. Tune longer, give pm.sample(initvals=...) nearer to the posterior, or "
    f"{UNITS}."
)
HIDDEN_NOISE = (
    "the log density seems to draw random numbers that PyTensor cannot see ({}): parallel chains would share them, "
    "random_seed would not reproduce them, and compiled functions may freeze them. Put the estimator into "
    "pymc_kameleon.NoisyLogLikelihood(fn), and draw from the rng alone that it gives to fn(rng, *parameters)."
)


def solved_beside(variables: list[str], factors: str, *, discrete: bool) -> str:
    """Another step evaluates the black boxes, too."""
    do = "Give all continuous variables to one step: NUTS evaluates at every leapfrog step."
    if discrete:
        do = "When a discrete variable moves, what was learned is of its old value: sum it out where you can."
    return (
        f"{', '.join(variables)} is sampled by another step, which evaluates the black box of {factors} whenever it "
        f"evaluates the log density, needed or not. {do}"
    )


def missed(found: dict) -> str:
    """Probes lie where the surrogate does not cover the posterior."""
    has = "has a log density" if found["probes_missed"] == 1 else "have log densities"
    return (
        f"{found['probes_missed']} of {found['probes']} points drawn from the flattened surrogate {has} "
        f"as high as the draws', where the surrogate is far too low: near {found['missed_where']}. Only random-walk "
        "moves reach that, and there may be too few draws of it."
    )


def nothing_to_sample(step: str, shapes: dict) -> str:
    """The variables have no element."""
    found = ", ".join(f"{name} has shape {shape}" for name, shape in shapes.items())
    return f"{step} found nothing to sample: {found}."


def not_finite(step: str, value: float, factors: dict, point: dict, *, starts: bool) -> str:
    """The chain is where the log density is not finite."""
    found = ", ".join(f"{name} = {v}" for name, v in factors.items()) or f"their sum, {value}"
    if starts:
        where = f"cannot start: the log density is {value} at the chain's first point"
    else:
        where = f"cannot go on: the log density became {value} when another step moved its variables"
    return (
        f"{step} {where}. Not finite there: {found}. The point (unconstrained): "
        f"{ {k: np.asarray(v).tolist() for k, v in point.items()} }. Give another start with "
        "pm.sample(initvals=...), or look at the factors named."
    )


def begins_elsewhere(value: float, factors: dict) -> str:
    """There was no density at the initial point."""
    found = ", ".join(f"{name} = {v}" for name, v in factors.items()) or f"the sum of all factors is {value}"
    return (
        f"at the model's initial point there is no density ({found}). Chains begin elsewhere instead, beside it or at "
        "points of the prior; pm.sample(initvals=...) says where."
    )


def not_a_number(step: str, error: Exception) -> str:
    """A factor's log density is an array where a number is asked for."""
    notes = " ".join(getattr(error, "__notes__", []))
    return f"{step} cannot start: {error}, which is no number. {notes}"


UNUSED_EVALUATIONS = (
    "evaluations= was given and is not used: a surrogate is learned from it while tuning, and there is none. Give "
    "pm.sample tune=100 or more."
)


def where_it_was_evaluated(step: str, at: dict, black_boxes: list[str], *, may_fail: bool) -> str:
    """The note on an exception of the model's; ``may_fail``: it is none that has to be mended."""
    where = f" of {' or '.join(map(repr, black_boxes))}," if black_boxes else ""
    instead = (
        " Where a model cannot be evaluated it can return NaN instead of raising: the proposal is then rejected, and "
        "counted in the statistic 'nonfinite'."
    )
    return f"{step} was evaluating the log density{where} at {at} (unconstrained values)." + instead * may_fail


def where_it_failed(factors: dict, value: float, at: dict, noisy: str = "") -> str:
    """Which factor was NaN or +inf, where, what follows from it and what to do; ``noisy``: those that are estimates."""
    found = ", ".join(f"{name} = {v}" for name, v in factors.items()) or f"the sum, {value}"
    if noisy and not factors:
        found = f"the estimate of {noisy}, {value} once and a number when it was made again,"
    return (
        f"last {found} at {', '.join(f'{n} = {np.asarray(v).tolist()}' for n, v in at.items())} "
        "(unconstrained). Such points are rejected: NaN says that a model cannot be evaluated there, and the posterior "
        "lacks whatever lies there. If that is meant, return -inf, a density of zero; if not, repair the factor."
    )


def model_has_changed(step: str, before: list[str], now: list[str]) -> str:
    """The step compiled another log density."""
    new, gone = ([n for n in a if n not in b] for a, b in ((now, before), (before, now)))
    what = "; ".join(f"{n} {', '.join(v)}" for n, v in (("new:", new), ("gone:", gone)) if v)
    return (
        f"{step} was built before the model was complete ({what or 'the order is another'}), and would sample another "
        "posterior. Build the step last."
    )


def other_shapes(step: str, before: dict, now: dict) -> str:
    """Data of another length have made the variables longer or shorter."""
    found = ", ".join(f"{n} had shape {s} and has {now[n]}" for n, s in before.items() if s != now[n])
    return f"{step} was built for other data: {found}. After pm.set_data with data of another length build a new step."


def other_tuning(step: str, declared: int, draws: int) -> str:
    """Tuning was of another length than the step had been told."""
    return (
        f"built with tune={declared}, and there were {draws} tuning draws: what it times by the length of tuning came "
        f"{'early' if declared < draws else 'late or never'}. Give {step} the number that pm.sample gets, tune={draws}."
    )


def another_mode(at: str, log_mass: float, left_centred: bool) -> str:
    """A climb ended in a mode that the chain has not come to; or in the funnel of a hierarchy left centred."""
    mass = float(f"{np.exp(min(log_mass, 50.0)):.2g}")
    return (
        f"a climb from another start ended in another mode, near {at}, with about "
        f"{mass:g} times the mass of this chain's, and by the end of tuning the chain "
        "had not been there: its draws may be of one mode. Compare several chains by R-hat. Where black boxes are "
        "learned one by one chains that tune longer go there; else pymc_kameleon.sample jumps between modes that its "
        "starts reach, GaussianMixtureStep between those that it has seen."
        + ' Or one of the two is the neck of a hierarchy\'s funnel: parametrization="auto" opens it.'
        * left_centred
    )


def too_noisy(sd: float, work: Work, *, correlated: bool, ours: bool) -> str:
    """The noise of the log density lets too few moves through; of tuned work, and of estimates not ``ours``, too."""
    low, high = noise_probe.work_factors(sd)
    now, given = (", ".join(map(str, n)) for n in (work.now, work.given))
    chosen = f", with work={now}, which tuning has come to ({given} given)," if work.now else ","
    if not ours:
        todo = (
            f"it takes {low:.0f} to {high:.0f} times the simulations. What draws them here has no such number (a "
            "pm.Simulator, say): write the likelihood as a pk.NoisyLogLikelihood that averages so many"
        )
    else:
        todo = (
            f"give the estimator {low:.0f} to {high:.0f} times {'that' if work.now else 'the'} work (particles, "
            "importance samples, simulations)"
            f"{'' if correlated else ', or correlate the noise of successive estimates (correlation=)'}"
        )
    return (
        f"late in tuning the noise of the log density has a standard deviation of {sd:.1f}{chosen} which lets at most "
        f"{100.0 * noise_probe.standstill_acceptance(sd):.2g}% of any moves through. {noise_probe.BEST_SD[0]} to "
        f"{noise_probe.BEST_SD[1]} is best (Doucet et al., 2015): {todo}."
    )


def work_chosen(work: Work, probe: NoiseProbe) -> str:
    """How much work the estimators got."""
    now, given = (", ".join(map(str, n)) for n in (work.now, work.given))
    if work.pairs == 0:
        return f"work={now} as given: tuning was too short to measure the noise of the log density."
    gets = f"keeps work={now}, as given" if now == given else f"gets work={now} from now on ({given} given)"
    return (
        f"the estimator {gets}, with which the log estimate's noise has a "
        f"standard deviation of {noise_probe.sd(probe):.1f}; at the noisiest of {len(probe.squares)} points late in "
        f"tuning two differ by {math.sqrt(2.0 * max(probe.squares)):.1f}; tuning took {work.spent} units of work "
        "(particles, samples) in all."
    )


def no_surrogate(evaluations: int, wanted: int | None) -> str:
    """Tuning ended before the first fit."""
    return (
        f"tuning ended before a surrogate was learned ({evaluations} evaluations): random-walk moves do "
        f"all of the work. Tune longer{f', {wanted} draws or more' if wanted else ''}."
    )
