"""KamiltonianStep: which of its surrogates it learns, from what, and what it says of them."""

import math
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, ClassVar, Literal, Unpack

import numpy as np

from pymc_kameleon.numerics.evaluations import Evaluations
from pymc_kameleon.samplers.kamiltonian.factors.sampler import FactoredKamiltonian
from pymc_kameleon.samplers.kamiltonian.scores.estimators import FiniteKamiltonian, LiteKamiltonian
from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian
from pymc_kameleon.samplers.known_points import begin as check_known
from pymc_kameleon.samplers.known_points import check_finite
from pymc_kameleon.samplers.schedule import ScheduleName
from pymc_kameleon.steps.base import COUNT, SINGLE, KernelStep
from pymc_kameleon.steps.factors import structure
from pymc_kameleon.steps.factors.factored_density import FactoredDensity
from pymc_kameleon.steps.hierarchies.reparametrized_density import AsIfCentred, reparametrized_density
from pymc_kameleon.steps.hierarchies.scales_in_graph import known_scales
from pymc_kameleon.steps.known_points import known_points
from pymc_kameleon.steps.options import CommonOptions, described, unknown_option
from pymc_kameleon.steps.signatures import default, given
from pymc_kameleon.steps.told import advice, progress
from pymc_kameleon.steps.told.surrogate_report import SurrogateWatch
from pymc_kameleon.surrogates.values.library import family_number

# statistics that may be too large for the four bytes that they are stored in: infinite then
LARGE = (
    "energy_error", "surrogate_error", "residual_sd", "surrogate_score", "gaussian_score", "efficiency", "lengthscale",
    "regularization",
)  # fmt: skip


class KamiltonianStep(KernelStep):
    """Hamiltonian moves on a learned surrogate: of log densities, or as in Kamiltonian MC (Strathmann et al., 2015).

    The default surrogate learns from the values of the log density, which is this package's; "lite" and "finite" learn
    from the draws alone, as the paper's do. Leapfrog needs a gradient; the surrogate has one. The true log density, or
    its retained noisy estimate, decides acceptance, so a bad surrogate costs time and never exactness.

    Parameters
    ----------
    surrogate : {"values", "lite", "finite"}, or pk.Values, pk.Lite or pk.Finite
        A word, or an object with options: ``surrogate=pk.Values(growth=1.5)``. "values" (default): a regression on the
        log density at every point evaluated while tuning, accepted or rejected, see
        :mod:`pymc_kameleon.samplers.kamiltonian.values.sampler`. "lite" and "finite": the paper's kernel exponential
        families, fitted to the chain's history by score matching, see
        :mod:`pymc_kameleon.samplers.kamiltonian.scores.sampler`.
    evaluations : optional
        "values" only: points whose log density is known up to a constant, all of which the surrogate learns from at
        once. What :func:`pymc_kameleon.sample` returned, or its group ``evaluations``; or a table, (points (n, d),
        log densities (n,)), whose points may be a dict by the names of the model's variables or, unconstrained, of the
        value variables. The first tuning draws evaluate five of them again and are refused with a ``ValueError`` if the
        difference is not a constant (not under noise); the chain goes on from one of them. Tuning of some 100 draws is
        then enough to judge the surrogate. Where black boxes are learned one by one, a table only says where chains
        begin, and what :func:`pymc_kameleon.sample` returned is learned from. Default: none.
    learn : {"auto", "all"}
        "values" only. "auto" (default): where the model has black boxes of up to 20 inputs, other than one log
        likelihood of most of the unknowns, learn those, one by one, and take the rest from the model's graph;
        elsewhere all but normal priors, random walks and data about what is linear, whose scales are unknowns, and
        those scales' HalfNormal, Exponential, Gamma and InverseGamma priors; see docs/hierarchical.md. Where there are
        such, a climb ends after 12 max(d, 8) evaluations, as soon as it does not rise. The log density is learned
        as a whole, too, with any option of pk.Values but ``tune``, ``correlation=`` or ``refresh_blocks=``, where it is
        noisy, beside other steps, and of more than 20,000 outputs. "all": the whole log density.
    preset : {None, "paper"}
        "paper", with "lite" and "finite": one lengthscale, no base density, the parameters' own units, leapfrog steps
        of U[0.01, 0.1] (1 to 10 of them and 1000 points with "lite"; 10 to 100, 2000 points, 2000 features and the
        median distance as lengthscale with "finite"), and trajectories only as soon as there is a surrogate. The paper
        gave exact draws as ``history``; from a cold start such a chain may stand still. With other options:
        ``surrogate=pk.Lite.paper(...), arrival=False``.
    expensive : list of str
        Names of variables, or of Ops' classes, to learn like black boxes although they have a gradient. Default none.
    schedule : {"harmonic", "root"} or callable, optional
        "lite" and "finite" only. While tuning, once there is a first surrogate: the probability a_t of fitting another
        after the t-th draw (the paper's algorithm 1), 1 / t, t^-1/2 or a function of t. Default: at intervals that grow
        by a half.
    parametrization : {"auto", "model"}, optional
        "auto" (default): with black boxes learned one by one, location-scale priors with unknown parents are sampled in
        non-centred coordinates, as far as the data say; with "values", what is non-centred by hand (z ~ N(0, 1), and
        mu + sigma z) is sampled as mu + sigma z. Draws are of the model's own variables all the same. "model": as the
        model has them.

    Notes
    -----
    Differs from the paper: it adapts for ever, with a probability a_t that falls to zero; here all is frozen when
    tuning ends. The default learns from values of the log density (the paper matches scores of positions), shares the
    draws with a random walk, and starts cold; most of the paper's figures were made with exact draws as history. Its
    U = f and exp(H(end) - H(start)) have the wrong sign: here U = -f and exp(H(start) - H(end)).

    Statistics of every draw: ``accept``, ``accepted``, ``step_size`` (of the leapfrog), ``lp``, ``nonfinite``,
    ``other_mode``, ``move`` (which kernel made the draw), ``evaluations`` (of the log density, so far), ``n_steps``
    (surrogate gradients; in the step itself under NUTS' name, ``tree_size``), ``energy_error`` (of a tested trajectory,
    with the true log density), ``diverging`` (that error is finite and above 1000, as for NUTS; never under noise),
    ``surrogate_diverging`` (a trajectory left the region where the surrogate is used, or diverged on it: refused by
    design, at no cost), ``refits``; with "values" ``surrogate`` (the family chosen, a number:
    :func:`pymc_kameleon.diagnostics.family`), ``surrogate_error`` (held out), ``residual_sd`` (out of sample),
    ``uncovered``, ``share``, and of black boxes learned one by one ``factors``, ``worst_factor``, ``noncentred``;
    otherwise ``surrogate_score``, ``gaussian_score``, ``random_walk_share`` (the least), ``share`` (of the rest, where
    the chain is, for the surrogate), ``efficiency`` (of a trajectory, in random-walk moves), ``n_history``,
    ``lengthscale``, ``regularization``.

    Examples
    --------
    >>> import pymc as pm, pymc_kameleon as pk
    >>> with pm.Model():
    ...     x = pm.Normal("x", shape=2)
    ...     idata = pm.sample(100, tune=700, chains=1, step=pk.KamiltonianStep(), progressbar=False)
    """

    name = "kamiltonian"
    parametrizes = False  # but where black boxes are learned one by one
    leading = ("tune", "surrogate", "evaluations", "learn", "preset")
    chooses = "surrogate"
    schedules = ("lite", "finite")
    variants: ClassVar[dict] = {
        "values": ValueKamiltonian, "lite": LiteKamiltonian, "finite": FiniteKamiltonian,
    }  # fmt: skip
    stats_dtypes_shapes: ClassVar[dict] = {
        **{n: kind for n, kind in KernelStep.stats_dtypes_shapes.items() if n != "scaling"},
        **dict.fromkeys((*LARGE, "step_size", "uncovered", "share", "random_walk_share"), SINGLE),
        # ``tree_size`` is NUTS' name; PyMC's converter calls it n_steps
        **dict.fromkeys(("evaluations", "tree_size", "n_history"), COUNT),
        **dict.fromkeys(("refits", "factors", "worst_factor", "noncentred"), (np.int16, [])),
        **dict.fromkeys(("diverging", "surrogate_diverging"), (bool, [])),
        "surrogate": (np.int8, []),  # of ``library.FAMILIES``
    }  # fmt: skip
    watches = SurrogateWatch
    _bar_shows = progress.SURROGATE

    def __init__(
        self, vars=None, *,
        surrogate: Literal["values", "lite", "finite"] | ValueKamiltonian | LiteKamiltonian | FiniteKamiltonian
        = default("values"),
        evaluations: Any = None, learn: Literal["auto", "all"] = "auto", expensive: Sequence[str] = (),
        schedule: ScheduleName | Callable[[int], float] | None = default(None),
        **common: Unpack[CommonOptions],
    ):  # fmt: skip
        structure.check(learn, expensive)
        self._learn, self._expensive, self.known_points = learn, expensive, evaluations
        super().__init__(vars, **self._taken_apart(**given({"surrogate": surrogate, "schedule": schedule}), **common))
        if evaluations is not None:
            self.known_points = self._checked_points(evaluations)

    def _taken_apart(self, surrogate="values", tune=None, preset=None, **others):
        """The options, with a word and what differs from its defaults for a surrogate that is an object."""
        for name in sorted(others.keys() - CommonOptions.__annotations__.keys() - {"schedule"}):
            kinds = [word.title() for word, k in self.variants.items() if name in k.defaults()]
            elsewhere = " or ".join(f"surrogate=pk.{kind}({name}=...)" for kind in kinds)
            raise unknown_option(name, type(self).__name__, signature(type(self)).parameters, elsewhere)
        options = {"surrogate": surrogate, "tune": tune, "preset": preset, **others}
        if isinstance(surrogate, str):
            if surrogate == "values" and isinstance(preset, str) and preset == "paper":
                raise ValueError(
                    "preset='paper' is for the paper's estimators, and surrogate='values' is not one of them: give "
                    "surrogate='lite' or surrogate='finite' too."
                )
            return options
        word = {kind: word for word, kind in self.variants.items()}.get(type(surrogate))
        if word is None:
            raise TypeError(
                f"surrogate must be one of {tuple(self.variants)}, or pk.Values(...), pk.Lite(...) or pk.Finite(...), "
                f"got {surrogate!r}."
            )
        if preset is not None:
            raise ValueError(
                f"preset={preset!r} is for surrogate={word!r}, the word. With other options it is surrogate="
                f"pk.{word.title()}.paper(...), arrival=False."
            )
        defaults = surrogate.defaults()
        chosen = {
            n: getattr(surrogate, n) for n in defaults if described(getattr(surrogate, n)) != described(defaults[n])
        }
        if tune is not None and chosen.setdefault("tune", tune) != tune:
            raise ValueError(f"tune={tune!r}, but the surrogate's is {chosen['tune']!r}: give one.")
        return {**options, **chosen, "surrogate": word}

    def _checked_points(self, points) -> Evaluations:
        """What the user gives as ``evaluations``, as a record."""
        if self.variant != "values":
            raise ValueError(
                "evaluations are what surrogate='values' learns from; surrogate="
                f"{self.variant!r} learns from positions alone: give it a history."
            )
        if self.density.has_others:
            raise ValueError(
                f"evaluations= needs one step for all variables; {', '.join(v.name for v in self.vars)} is not all of "
                "the model, and the log density of the step changes with the other variables."
            )
        made = known_points(points, self.model, self.density)
        check_finite(made)
        return made

    def _compile(self, model, point, compile_kwargs, owns_auxiliary):
        density = self._compile_log_density(model, point, compile_kwargs, owns_auxiliary)
        if self.variant == "values" and self._learn == "auto" and not isinstance(density, FactoredDensity):
            density.scales = known_scales(model, self.vars, point, density)
        return density

    def _compile_log_density(self, model, point, compile_kwargs, owns_auxiliary):
        """The log density; cut at its black boxes, where that pays and no option is for learning the whole."""
        if self.variant == "values" and self._learn == "auto":
            reason = self._why_whole(owns_auxiliary)
            if reason and self._expensive:
                raise ValueError(f"expensive names black boxes to learn one by one, and {reason}.")
            if reason:
                structure.say_whole(model, reason)
            else:
                density = structure.factored_density(
                    model, self.vars, point, compile_kwargs, expensive=self._expensive,
                    noncentred=self._parametrization == "auto",
                )  # fmt: skip
                if density is not None:
                    return density
        if self.variant == "values" and self._parametrization == "auto":
            centred = reparametrized_density(model, self.vars, point, compile_kwargs, owns_auxiliary, AsIfCentred)
            if centred is not None:
                return centred
        return super()._compile(model, point, compile_kwargs, owns_auxiliary)

    def _sampler_of(self, density, sampler):
        if not self.by_factors:
            return sampler
        return FactoredKamiltonian(known=density.parts_known, tune=self.declared_tune)

    def _why_whole(self, owns_auxiliary):
        """Which option is for learning the log density as a whole; empty if none is."""
        if owns_auxiliary:
            return "correlation= and refresh_blocks= are for their noise"
        given = ", ".join(sorted(self.learning_options))
        return f"surrogate=pk.Values(...) with {given} is for the whole" if given else ""

    @property
    def by_factors(self) -> bool:
        """Whether black boxes are learned one by one."""
        return isinstance(self.density, FactoredDensity)

    @property
    def options(self) -> dict:
        """The options, defaults included, described so that they can be compared and stored."""
        own = {"learn": self._learn, "expensive": self._expensive, "parametrization": self._parametrization}
        return {**super().options, **described(own)}

    def _set_out(self, x, value, ours):
        if self.known_points is None:
            return super()._set_out(x, value, ours)
        if not self.tune:
            self.watch.add("evaluations", advice.UNUSED_EVALUATIONS, whole_run=True)
            return None
        return check_known(self.rng, self.known_points, x, value, comparable=not self.density.noisy)

    def _declared(self):
        """Those of all surrogates, and of this step's."""
        of_all = {"tree_size", "evaluations", "surrogate_diverging", "energy_error"}
        own = {*KernelStep.stats_dtypes_shapes, *of_all, *self.sampler.statistics}
        return {name: kind for name, kind in self.stats_dtypes_shapes.items() if name in own}

    def _own_statistics(self):
        found = self.sampler.stats(self.algorithm_state)
        found.pop("n_steps", None)  # each draw's, by another name
        for name in LARGE:
            if name in found:
                found[name] = _in_four_bytes(found[name])
        if "surrogate" in found:
            found["surrogate"] = family_number(found["surrogate"])
        if self.by_factors:
            worst = found["worst_factor"]
            found["worst_factor"] = self.sampler.known.factors.index(worst) if worst else -1  # type: ignore[attr-defined]
        return found

    def _draw_statistics(self, told):
        proposal = told.proposal
        found = self.sampler.draw_stats(self.algorithm_state, proposal)
        # What the surrogate's own dynamics call diverging is a trajectory that was refused by design and at no cost. To
        # PyMC and ArviZ ``diverging`` says that the sampler cannot follow the log density: only the true one can tell.
        trajectory = proposal.move.startswith(("surrogate", "hamiltonian"))
        error = -told.log_ratio if trajectory and proposal.log_q_ratio > -math.inf else math.nan
        found["surrogate_diverging"], found["diverging"] = found["diverging"], self.density.diverges(error)
        found["tree_size"] = found.pop("n_steps")
        found["energy_error"], found["evaluations"] = _in_four_bytes(error), self.evaluations
        return found


def _in_four_bytes(value):
    return math.copysign(math.inf, value) if abs(value) > 3e38 else value
