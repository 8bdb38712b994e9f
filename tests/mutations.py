"""Does the fast suite notice? Small wrong changes of the package, one at a time, each with the tests that should fail.

``python -m tests.mutations [--named] [number ...]`` copies the checkout to a temporary folder, makes each change there, runs the
tests named beside it (fast ones, stopping at the first failure) and, if they all pass, the whole fast suite (not with
``--named``). It prints a table and ends with an error if a mutation survives. A change whose text is not found exactly once is refused, here
and in ``tests/text/test_mutations.py``, so that the list cannot rot.
"""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numba
import pymc  # noqa: F401  # for the forks
import pytest

ROOT = Path(__file__).parents[1]
PARTS = ("pymc_kameleon", "tests", "benchmarks", "docs", "pyproject.toml", "README.md", "CHANGELOG.md")


class Mutation(NamedTuple):
    """Replace ``old`` by ``new`` in a module of the package; ``tests`` are pytest's arguments, files under tests/."""

    module: str
    old: str
    new: str
    reason: str
    tests: str


MUTATIONS = [
    # --- coordinates of a hierarchy, of the steps without a gradient ---
    Mutation("steps/hierarchies/reparametrized_density", "change = ((origin - share) * log_scale)", "change = ((share - origin) * log_scale)",
             "the Jacobian the wrong way round", "test_reparametrized.py"),
    Mutation("steps/hierarchies/reparametrized_density", "jacobian = float(((self._own - self._share) * log_scale)", "jacobian = float((self._share * log_scale)",
             "lp of other coordinates", "test_reparametrized.py"),
    Mutation("steps/hierarchies/reparametrized_density", "jacobian = float(((self._own - self._share)", "jacobian = float(((1.0 - self._share)",
             "lp of what is non-centred by hand as if it were not", "test_reparametrized.py -k hand"),
    Mutation("steps/factors/factored_density", "return x, float((self._own * log_scale).sum())", "return x, float(log_scale.sum())",
             "the same, of black boxes", "test_coordinates.py -k hand"),
    Mutation("steps/hierarchies/reparametrized_density", "return self.recast(x, self._share, self._own)[0]", "return self.recast(x, self._share, np.ones(self.dim))[0]",
             "z taken for mu + sigma z where a chain begins", "test_reparametrized.py -k hand"),
    Mutation("steps/hierarchies/coordinates", "(location + scale * z if prior.own else z)", "(location + scale * z)",
             "moved twice", "test_coordinates.py -k hand"),
    # a scale below 0 has no logarithm: the posterior would be cut there
    Mutation("steps/hierarchies/written_apart", "if not all(self.is_positive(a) for a in others):", "if False:",
             "a scale that may be negative", "test_written_apart.py"),
    Mutation("steps/hierarchies/written_apart", "return low is not None and constant(low) >= 0.0", "return low is not None",
             "a scale that may be negative, from an interval", "test_written_apart.py"),
    Mutation("steps/hierarchies/written_apart", "return all(self.is_positive(a, depth) for a in given[1:])",
             "return any(self.is_positive(a, depth) for a in given[1:])",
             "a scale that may be negative, from a clip", "test_written_apart.py"),
    Mutation("steps/hierarchies/written_apart", "_agreed(self._uses(rv, rv, 0))", "_agreed(self._uses(rv, rv, rv.ndim))",
             "a scale for each of effects that sum to zero", "test_written_apart.py -k zero"),
    Mutation("steps/hierarchies/written_apart", "if k >= 0.0 else None", "if k == k else None",
             "one element counted from both ends, with two scales", "test_written_apart.py"),
    Mutation("steps/hierarchies/coordinates", 'if variable in known or kind in ("MvNormalRV", "LogNormalRV"):',
             'if variable in known or kind in ("MvNormalRV",):', "a lognormal variable taken for a normal one", "test_written_apart.py -k family"),
    Mutation("steps/hierarchies/written_apart", "return packed in self.model.rvs_to_values and is_cholesky_rv(packed)",
             "return True", "any matrix taken for a Cholesky factor", "test_written_apart.py -k cholesky"),
    Mutation("steps/hierarchies/written_apart", "factor, bool(i) != transposed)", "factor, bool(i))",
             "vectors along the other axis", "test_written_apart.py -k cholesky"),
    Mutation("steps/hierarchies/reparametrized_density", "if not density.suits(model, variables, point):", "if False:",
             "a place of infinite density, at small scales", "test_written_apart.py -k digits"),
    Mutation("steps/hierarchies/coordinates", "if variable in before:\n        return True", "if variable in before:\n        return False",
             "a variable that depends on itself", "test_written_apart.py -k itself"),
    Mutation("steps/hierarchies/reparametrized_density", "dict(zip(priors, moved.terms, strict=True))",
             "dict(zip(priors, [0.0 * term for term in moved.terms], strict=True))",
             "the priors' terms are lost", "test_reparametrized.py"),
    Mutation("steps/hierarchies/reparametrized_density", "theirs = not others.isdisjoint({variable, *ancestors(given)})",
             "theirs = variable in others", "parents of another step", "test_reparametrized.py -k parents"),
    Mutation("steps/base", "        if unmoved and density.entered:", "        if False:", "u read off x where sigma is small",
             "test_reparametrized.py -k beside"),
    Mutation("steps/base", "                point = density.update(point, before.position)\n",
             "                pass\n", "a noisy estimate anew where x and u differ by rounding",
             "test_reparametrized.py -k noisy"),
    Mutation("samplers/life", "            value = here.log_density + change\n            self.state", "            value = here.log_density\n            self.state",
             "the retained value is of other coordinates", "test_reparametrized.py -k moving_over"),
    # --- terms that are alike, as one ---
    Mutation("steps/factors/alike", "index[0]).any():", "index[0]).all():",
             "a row that some share is taken for all of them", "steps/test_alike.py -k rows"),
    Mutation("steps/factors/split", "joined[np.argsort(order)]", "joined[order]",
             "inputs go to other black boxes", "steps/test_alike.py -k order"),
    Mutation("steps/factors/split", "np.concatenate(index)", "np.sort(np.concatenate(index)[::-1])[::-1].copy()",
             "outputs go to other terms", "steps/test_alike.py -k order"),
    Mutation("steps/factors/alike", "        if together is None:", "        if True:",
             "what is compiled grows with the groups", "steps/test_alike.py -k grow"),
    # --- the test itself, noise ---
    Mutation("samplers/seam", "bool(rng.random() < probability)", "bool(rng.random() <= 1.3 * probability)",
             "accepts too much", "test_metropolis.py test_adaptive_metropolis.py"),
    Mutation("samplers/seam", "return math.exp(min(0.0, log_ratio))", "return math.exp(log_ratio)",
             "probability above 1", "test_metropolis.py"),
    Mutation("numerics/step_size", "return log_scale + rate * (accept_prob - target_accept)",
             "return log_scale - rate * (accept_prob - target_accept)", "scales run away", "test_metropolis.py"),
    Mutation("samplers/seam", "noise_sd / math.sqrt(2.0)))", "noise_sd))", "attainable: twice the noise's variance",
             "test_metropolis.py"),
    Mutation("samplers/seam", "return self.patience * attainable(target_accept, self.noise_sd)",
             "return attainable(target_accept, self.noise_sd)", "stuck draws drag scales", "test_noise_probes.py"),
    Mutation("samplers/noise_probe", "square = 0.5 * difference**2", "square = difference**2", "noise variance twice",
             "test_noise_probes.py"),
    Mutation("samplers/noise_probe", "return probe._replace(met=0, chance=0.0, still=0, fresh=fresh)", "return probe",
             "patience never returns", "test_noise_probes.py"),
    Mutation("samplers/tuned_work", "(min(ratio, CAP) - MEAN)", "(MEAN - min(ratio, CAP))", "work runs the wrong way",
             "test_tuned_work.py"),
    Mutation("samplers/tuned_work", "least = min(1.0, worst", "least = min(0.0, worst", "work is lowered blindly",
             "test_tuned_work.py -k tails"),
    Mutation("samplers/tuned_work", "ratio = square / TARGET * sum(work.now)", "ratio = square / TARGET * sum(work.given)",
             "a pair is judged by other work", "test_tuned_work.py"),
    Mutation("samplers/life", "fresh=True), here=there)", "fresh=True))",
             "other work, the old estimate", "test_estimator_work.py -k retained"),
    Mutation("samplers/life", "            self.state = state._replace(work=state.work._replace(now=before.now))\n            return", "            return",
             "other work, and the estimate there was", "test_estimator_work.py -k zero"),
    Mutation("samplers/life", "        self.density.work = state.work.now\n", "",
             "the log density is not told its work", "test_estimator_work.py -k retained"),
    Mutation("samplers/noise_probe", "FRESH) if probe.fresh else 1.0", "FRESH) if False else 1.0", "fresh estimates mislead scales",
             "test_noise_probes.py -k fresh"),
    Mutation("samplers/life", 'self._state.stage is not None else "move"',
             'self._state.stage is not None else ("renewal" if self.density.noisy else "move")',
             "estimates are made anew after tuning", "test_noise_probes.py -k kept"),
    # --- life cycle of a step ---
    Mutation("samplers/life", "self._set(own=chain.freeze(self.sampler, self.here, self._state.own))",
             "self._place()", "adaptation is not frozen", "test_life.py -k nothing_adapts"),
    Mutation("samplers/life", "                self._set(own=self.sampler.freeze(self._state.own))\n        self._place()",
             "                self._set(own=self.sampler.freeze(self._state.own))",
             "what is cached at a point is not of it", "test_shares.py"),
    Mutation("samplers/chain", "        point = there  # the position", "        point = there._replace(noise=point.noise)  # the position",
             "accepted without its u", "test_pseudo_marginal.py -k 'auxiliary or correlat'"),
    Mutation("steps/noise/demands", "rho * block + math.sqrt(1.0 - rho * rho) *", "rho * block + (1.0 - rho) *",
             "u leaves N(0, I)", "test_pseudo_marginal.py -k 'correlat or anew'"),
    Mutation("steps/base", "self.nonfinite += 1", "self.nonfinite += 0", "non-finite proposals are not counted",
             "test_steps.py -k 'finite'"),
    Mutation("steps/base", "return Point(x, density.deterministic_part(x) + noisy, (noisy, normals))",
             "return Point(x, density.parts(x)[0], (noisy, normals))", "retained estimate is refreshed",
             "test_steps.py -k 'noisy_estimate' test_pseudo_marginal.py -k 'beside_a_noisy'"),
    Mutation("samplers/kamiltonian/scores/estimators", 'presets: ClassVar[dict] = {"paper": PAPERS["finite"]}', 'presets: ClassVar[dict] = {"paper": PAPERS["lite"]}',
             "preset: one for both surrogates", "test_kamiltonian.py -k preset"),
    # --- Kamiltonian, score matching ---
    Mutation("samplers/kamiltonian/sampler", "share = self.trusted(state, self.end(state, proposal, there))",
             "share = self.trusted(state, self.end(state, proposal, point))", "t' from the old y",
             "test_shares.py test_screened.py -k 'sign or matrix'"),
    Mutation("samplers/kamiltonian/sampler", "state.mixture, by_surrogate, state.share, share", "state.mixture, by_surrogate, share, state.share",
             "shares the wrong way round", "test_shares.py"),
    Mutation("samplers/kamiltonian/sampler", "state.mixture, by_surrogate, state.share, share", "state.mixture, by_surrogate, share, share",
             "share at one end only", "test_shares.py"),
    Mutation("samplers/kamiltonian/sampler", "        return state._replace(current=current, share=share)", "        return state._replace(current=current)",
             "keep and start do not update the share", "test_shares.py"),
    Mutation("samplers/kamiltonian/sampler", "return Current(proposal.carry.z, there.log_density, proposal.carry.value)",
             "return Current(proposal.carry.z, there.log_density, state.current.value)", "keep retains the old f", "test_shares.py"),
    Mutation("samplers/kamiltonian/sampler", "return ratio + trust.log_ratio(", "return ratio + 0.0 * trust.log_ratio(",
             "ratio of the shares dropped", "test_screened.py -k 'matrix or invariant'"),
    Mutation("samplers/kamiltonian/scores/sampler", "log_q_ratio = 0.5 * float(momentum @ momentum) - kinetic",
             "log_q_ratio = kinetic - 0.5 * float(momentum @ momentum)", "kinetic energy reversed",
             "test_kamiltonian.py -k 'log_q_ratio or sign or invariance'"),
    Mutation("samplers/kamiltonian/scores/sampler", "mixture=mixture, residuals=empty(1, 1),", "mixture=None, residuals=empty(1, 1),",
             "frozen without its mixture", "test_kamiltonian_mixture.py"),
    Mutation("samplers/kamiltonian/scores/sampler", "z=(current.z - region[0]) / region[1]", "z=current.z",
             "share measured in the target's units", "test_presets.py"),
    Mutation("samplers/kamiltonian/scores/sampler", "walk_share=state.walk_share if self.follows else self.random_walk_share,",
             "walk_share=state.walk_share,", "preset keeps the random walk", "test_presets.py"),
    Mutation("surrogates/scores/choose", "(z[i] - region[0, i]) / region[1, i]", "z[i]",
             "region in the target's units", "test_presets.py"),
    Mutation("surrogates/scores/choose", "        z += step_size * momentum\n", "        z += 1.01 * step_size * momentum\n",
             "leapfrog no longer follows -f", "test_kamiltonian.py -k leapfrog"),
    # --- Kamiltonian, values ---
    Mutation("samplers/kamiltonian/values/sampler", "ratio = path.start_value - path.end_value  # P^K", "ratio = path.end_value - path.start_value  # P^K",
             "surrogate's ratio reversed", "test_value_kamiltonian.py -k 'leaves_the_target'"),
    Mutation("samplers/kamiltonian/trust", "excess = point.log_density - point.value - mixture.typical - mixture.slack",
             "excess = point.log_density - point.value - mixture.typical", "no slack", "test_shares.py"),
    Mutation("samplers/kamiltonian/trust", "return math.log((1.0 - keep * new_share) / (1.0 - keep * share))", "return 0.0",
             "random walk's ratio dropped", "test_shares.py"),
    Mutation("surrogates/transitions", "        if u[ACCEPT] < accept_prob:", "        if u[ACCEPT] < 2.0:",
             "inner test dropped", "test_value_kamiltonian.py -k 'inner'"),
    Mutation("samplers/kamiltonian/values/rays", "return Proposal(position, len(moved) * epsilon, \"ray\")", "return Proposal(position, 0.0, \"ray\")",
             "moves along rays without their Jacobian", "test_rays.py"),
    Mutation("samplers/kamiltonian/values/rays", "return Proposal(position, len(moved) * epsilon, \"ray\")", "return Proposal(position, d * epsilon, \"ray\")",
             "one coordinate moved, the Jacobian of all", "test_rays.py"),
    Mutation("samplers/kamiltonian/values/tuning", "walk=WALK.freeze(state.walk), learning=None",
             "walk=state.walk, learning=None", "the walk goes on adapting", "test_value_kamiltonian.py -k 'frozen or dropped'"),
    Mutation("samplers/screened", "start.log_density - here.log_density, MOVE", "0.0, MOVE", "ratio of the surrogate dropped",
             "test_screened.py -k 'steps_on_the_surrogate or matrix'"),
    Mutation("samplers/schedule", '"propose", "freeze", ', '"propose", ', "a sampler with a schedule is not frozen",
             "test_schedule.py -k frozen"),
    Mutation("samplers/screened", "state._replace(inner=self.inner.freeze(state.inner), learning=None)", "state._replace(inner=self.inner.freeze(state.inner))",
             "screened moves learn for ever", "test_screened.py"),
    Mutation("samplers/screened", "                here, inner, *_ = transition(rng, self.inner, here, inner, evaluate)", "                here, _, *_ = transition(rng, self.inner, here, inner, evaluate)",
             "inner steps from the covariance of the start", "test_screened.py"),
    Mutation("samplers/screened", "            inner = proposal.carry.inner\n", "            inner = state.inner\n", "cached covariance is not moved",
             "test_seam.py -k 'screened'"),
    # --- local moves, random features, mixture ---
    Mutation("samplers/kameleon/local_moves", "        reverse = log_step_density(delta, there, gamma, nu)",
             "        reverse = log_step_density(delta, state.covariance, gamma, nu)", "reverse density at the old point",
             "test_kameleon.py -k ratio test_local_moves.py -k invariance"),
    Mutation("samplers/kameleon/local_moves", "            return state._replace(covariance=self.carried(proposal))", "            return state",
             "cached covariance is not moved", "test_seam.py -k brings_along"),
    Mutation("samplers/kameleon/local_moves", "        return 1.0 / (moves - trial)", "        return 0.5 / (moves - trial)", "not the dissertation's rate",
             "test_presets.py"),
    Mutation("samplers/kameleon/local_moves", "self.rate_at(moves), -30.0, 30.0)", "self.rate_at(moves), -30.0, 4.0)", "eta is capped",
             "test_presets.py"),
    Mutation("samplers/kameleon/local_moves", "        given = self.gamma_after(state.learned)", "        given = self.gamma_after(1)", "gamma does not fall",
             "test_paper_variants.py"),
    Mutation("samplers/kamiltonian/scores/estimators", "refits >= self.lite_fits", "refits > self.lite_fits", "one surrogate too many is lite",
             "test_paper_variants.py -k lite_comes_first"),
    Mutation("samplers/kameleon/fast", "moments, lengthscale, chosen = model.moments, model.lengthscale, states[model.seen :]",
             "moments, lengthscale, chosen = model.moments, model.lengthscale, states", "history counted twice",
             "test_presets.py test_kameleon.py"),
    Mutation("kernels", "rng.chisquare(df, (size, 1))", "rng.chisquare(df, (size, dim))", "independent t's",
             "test_kernels.py test_random_features.py"),
    Mutation("numerics/random_features", "    phi *= math.sqrt(2.0 / phi.shape[1])", "    phi *= math.sqrt(1.0 / phi.shape[1])",
             "features of half the kernel", "test_random_features.py"),
    Mutation("samplers/gaussian_mixture/moves", "    return _position(z_new, centre, factor), reverse - forward",
             "    return _position(z_new, centre, factor), 0.0", "local move's ratio dropped",
             "test_gaussian_mixture.py -k 'not slow'"),
    Mutation("samplers/autoregressive", "log_ratio += 0.5 * (y_new[i] * y_new[i] - y[i] * y[i])",
             "log_ratio -= 0.5 * (y_new[i] * y_new[i] - y[i] * y[i])", "ratio reversed", "test_autoregressive.py"),
    # --- adapting ---
    Mutation("samplers/coordinate_moves", "    log_scales[i] += gain / abs(count) * error", "    log_scales[i] += gain * error",
             "the gain never falls", "test_coordinate_moves.py"),
    Mutation("samplers/shape_learners/base", "else outcome.accept_prob)", "else outcome.accepted)", "noise collapses the radius",
             "test_coordinate_moves.py"),
    Mutation("samplers/shape_learners/cma", "outcome.target(SUCCESS_THRESHOLD)", "SUCCESS_THRESHOLD + 1.0", "path takes every step",
             "test_shape_learners.py test_coordinate_moves.py"),
    Mutation("samplers/adaptive_metropolis", "history=None, values=None, base=None, warmup=0",
             "values=None, base=None, warmup=0", "history kept after tuning",
             "test_adaptive_metropolis.py test_step_contract.py -k 'grow or freeze or frozen'"),
    # --- estimators ---
    Mutation("gp/estimator", "np.exp(weights - largest).mean()", "np.exp(weights - largest).sum()",
             "estimate n times too large", "test_gp_estimator.py"),
    Mutation("particle_filter", "total += largest + math.log(running / n_particles)", "total += largest + math.log(running)",
             "likelihood times n", "test_particle_filter.py"),
    Mutation("particle_filter", "mean + sd / math.sqrt(1.0 - persistence * persistence) * u", "mean + sd * u",
             "first state is not stationary", "test_particle_filter.py"),
    Mutation("numerics/history", "return 1 + int((states[1:] != states[:-1]).any(axis=1).sum())", "return len(states)",
             "repeats count as distinct", "test_metropolis.py"),
    # --- black boxes one by one, chains together, the second look ---
    Mutation("steps/hierarchies/coordinates", "term = term - share * log_scale", "term = term",
             "partially non-centred without its Jacobian", "test_coordinates.py"),
    Mutation("steps/hierarchies/coordinates", "return (u[i] - share[i] * location) * pt",
             "return (u[i] - location) * pt", "lambda forgotten in the location", "test_coordinates.py"),
    Mutation("samplers/modes/catalogue", "jacobian = catalogue.log_dets[there] - catalogue.log_dets[here]", "jacobian = 0.0",
             "a jump has no Jacobian", "test_modes.py -k jacobian"),
    Mutation("samplers/modes/catalogue", "0.5 * distances(catalogue, x) ** 2 + catalogue.log_dets", "0.5 * distances(catalogue, x) ** 2",
             "a wide mode claims too little", "test_modes.py -k assignment"),
    Mutation("samplers/modes/sampler", "return geometry.mode_of(catalogue, x) == mode", "return True",
             "a jump arrives anywhere", "test_modes.py -k leaves"),
    Mutation("samplers/modes/sampler", "return Proposal(position, start - value, move, carry)", "return Proposal(position, 0.0, move, carry)",
             "a free chain's ratio without F", "test_modes.py -k leaves"),
    Mutation("samplers/modes/sampler", "math.exp(min(0.0, new_value - value + log_jacobian))", "1.0",
             "a jump within the free chain is not tested", "test_modes.py -k leaves"),
    Mutation("samplers/pooled/drawing", "self.members[k] = Frozen(rng, point, state)", "self.members[k] = self.members[k]._replace(point=point)",
             "a member keeps another place's state", "test_pooled.py"),
    Mutation("samplers/pooled/learning", "if self.done or not chains.plan.climb or", "if True or",
             "modes are not looked for", "test_modes.py -k weights"),
    Mutation("samplers/pooled/climbs", "    return 2.0 * here - point if back and climb.start is None else point", "    return point",
             "climbs all step the same way", "test_pooled.py -k first_step"),
    Mutation("samplers/pooled/climbs", "climbs=_gone_on(climbs)", "climbs=tuple(climbs)", "what ended on a slope is given up",
             "test_pooled.py -k slope"),
    Mutation("samplers/pooled/climbs", "(c is top or not _holds_its_own(c, top))", "not _holds_its_own(c, top)",
             "all that end on one slope stay there", "test_pooled.py -k slope"),
    Mutation("samplers/pooled/climbs", "depth(d) - unknown", "depth(d)", "an end is given up before it has converged", "test_pooled.py -k converged"),
    Mutation("samplers/pooled/checks/looks", "self.climbs[k] = arrival.leave(self.climbs[k])", "self.climbs[k] = self.climbs[k]._replace(done=True)",
             "an end without draws is weighed before it has arrived", "test_pooled.py -k weighs"),
    Mutation("samplers/pooled/learning", "cut = self._cut_of_ends(part)", "cut = None", "the ends of climbs are not compared", "test_modes.py -k at_once"),
    Mutation("samplers/modes/detection", "    return lower - 0.5 * positions.shape[1]", "    return lower",
             "a draw is as high as the top", "test_modes.py -k refuted"),
    Mutation("samplers/modes/saddle", "        return self.highest >= self.enough", "        return False",
             "the ends of a banana are two modes", "test_modes.py -k banana"),
    Mutation("samplers/modes/saddle", "        return self.highest >= self.enough", "        return True",
             "two modes are always one", "test_modes.py -k 'banana or found'"),
    Mutation("samplers/pooled/tuning", "usable = trials > 0 and accepted >= USABLE * trials", "usable = True",
             "tuning ends with a surrogate that is of no use", "test_pooled.py -k usable"),
    Mutation("samplers/pooled/drawing", "self.members[k] = Frozen(rng, point, state)",
             "self.members[k] = Frozen(rng, Point(point.position, here.log_density), state)", "a member keeps another place's log density", "test_pooled.py"),
    Mutation("samplers/kamiltonian/values/refits", "    return min(later, size + max(20, size - options.elsewhere))", "    return later",
             "a chain that arrived late waits for its next surrogate", "test_value_kamiltonian.py -k wait_for"),
    Mutation("samplers/arrival/phase", " and not _is_rising(state):", ":",
             "arrival: a near phase on every piece of a ridge", "test_arrival.py -k rises"),
    Mutation("samplers/arrival/phase", "(n > state.long and not _is_rising(state))", "n > state.long",
             "a long climb ends on its way", "test_arrival.py -k long"),
    Mutation("steps/prior_scale", "if density.scales:", "if True:", "a climb ends for a surrogate that knows nothing",
             "test_arrival.py -k long"),
    Mutation("samplers/arrival/phase", 'elif gain > little(d) or (state.move == "climb" and not state.failed):', "elif gain > little(d):",
             "a climb that comes true does not end the near phase", "test_arrival.py -k comes_true"),
    Mutation("samplers/arrival/phase", "    return bool((state.positions == point).all(axis=1).any())", "    return False",
             "a climb evaluates what it has evaluated", "steps/test_steps.py -k 'stored_stream and arrival'"),
    Mutation("samplers/arrival/phase", "failed=False, climbing=True)", "failed=False)", "after a false arrival the climb stops at once",
             "test_arrival.py -k false_arrival"),
    Mutation("samplers/arrival/search", "better = mass(climb) > mass(best) + BETTER", "better = mass(climb) > mass(best) - BETTER",
             "chains leave for modes that are no higher", "test_arrival_search.py"),
    Mutation("samplers/arrival/search", "contains(rival, x, rival.angles) or log_density > rival.top + far_in_height(len(x))", "contains(rival, x)",
             "a flat part counts as a mode of a chain in a spike", "steps/test_another_mode.py -k after_tuning"),
    Mutation("samplers/life", " or self._walks_in_vain(stage)):", "):", "a chain walks on far below a climb",
             "test_arrival_search.py -k far_above"),
    Mutation("samplers/life", "            self._leave(stage.stop())", "            pass", "tuning ends far below a climb",
             "test_arrival_search.py -k tuning_ends"),
    Mutation("samplers/arrival/search", "max(_top(self.last), _top(self.chosen))", "max(_top(climb) for climb in self.climbs)",
             "a chain stops its walk for a narrow spike", "test_arrival_search.py -k spike"),
    Mutation("samplers/life", "if stage.chosen is stage.climbs[0]:", "if False:", "a chain begins anew where it has begun",
             "test_arrival_search.py -k far_above"),
    # --- life cycle: what ends with tuning, what is kept, what is refused ---
    Mutation("samplers/life", "            self._leave(stage.stop())\n        self._set(stage=None, elsewhere",
             "            self._leave(stage.stop())\n        self._set(elsewhere", "climbs go on after tuning",
             "test_arrival.py -k 'ends_before or climbs_under_way'"),
    Mutation("steps/prior_scale", "            start = x + jitter(scale) * rng.uniform(-1.0, 1.0, len(x))", "            start = x",
             "chains set out from one point", "test_arrival.py"),
    Mutation("steps/prior_scale", "        if climbs:\n            budget", "        if True:\n            budget",
             "noisy values are compared: the climb", "test_arrival.py test_pseudo_marginal.py -k 'noisy or noise or without'"),
    Mutation("samplers/life", "        if self._state.stage is not None:  # moved on its way", "        if False:",
             "an arrival goes on from where the chain no longer is", "test_arrival.py test_step_contract.py -k 'moved'"),
    Mutation("samplers/life", "        self.state = State(centring=choice, work=work)", "        self.state = State(centring=choice, work=work, own=self._state.own if hasattr(self, '_state') else None)",
             "a chain inherits what another learned", "test_life.py -k inherits"),
    Mutation("samplers/life", "        self.state = State(centring=choice, work=work)", "        self.state = State(centring=choice, work=work, probe=self._state.probe if hasattr(self, '_state') else noise_probe.NoiseProbe())",
             "a chain inherits another's noise", "test_life.py -k inherits"),
    Mutation("samplers/life", 'if self._state.tune or self._state.stage is not None else "move"', 'if self._state.tune else "probe"',
             "probes go on after tuning", "test_life.py -k made_anew"),
    Mutation("steps/sampling_state", "        if given == mine:", "        if given == mine or name in ('options', 'method'):",
             "the state of other options is taken", "test_saved_state.py -k refused"),
    Mutation("steps/base", "row = progress.Row(own, **self._draw_statistics(told))", "row = progress.Row(own)",
             "a draw's own statistics are left out", "test_structure.py -k one_evaluation"),
    Mutation("samplers/pooled/by_values", "return tuning.fix(hub, pooled_elite.elite(hub)[0], CAUTION)", "return hub",
             "together: the hub is not frozen", "test_pooled.py -k hub"),
    Mutation("samplers/pooled/tuning", "[Frozen(m.rng, m.point, self.learner.sampler.place(hub, m.point)) for m in self.members]", "[Frozen(m.rng, m.point, hub) for m in self.members]",
             "together: members keep the shares of tuning", "test_pooled.py -k frozen_members"),
    Mutation("samplers/pooled/ahead", "    rng.random()  # the test's\n", "", "a guess does not know of the test's uniform",
             "test_pooled.py -k guesses"),
    Mutation("samplers/pooled/ahead", " or state.share != found.share:", ":", "a guess is taken under another share",
             "test_pooled.py -k guesses"),
    Mutation("samplers/pooled/ahead", "if found is None or accepted != found.accepted", "if found is None", "a wrong guess is taken",
             "test_pooled.py -k guesses"),
    Mutation("samplers/pooled/tuning", "FORLORN if k in self.sentinels else 1.0", "1.0", "sentinels are fetched, too",
             "test_pooled.py test_pooled_factors.py -k sentinel"),
    Mutation("samplers/pooled/tuning", "FORLORN if k in self.sentinels else 1.0", "math.inf if k in self.sentinels else 1.0",
             "a sentinel stays however far below it is", "test_pooled.py -k sentinel"),
    Mutation("samplers/pooled/by_factors", "return self.sampler.fix(rng, _of_the_elite(self.view(hub, best(members))), CAUTION)", "return hub",
             "black boxes together: the hub is not frozen", "test_pooled_factors.py -k drawing"),
    Mutation("samplers/pooled/tuning", "if few or self.evaluations < self.earliest:", "if few:", "black boxes seem to be known at once",
             "test_pooled_factors.py -k tails"),
    Mutation("sampling/arguments", "starts[: 2 * len(some) : 2] = some", "pass", "black boxes: all chains begin around one point",
             "test_sample_black_boxes.py -k second"),
    Mutation("samplers/pooled/members", "learning=hub.learning._replace(**member.own)", "learning=hub.learning",
             "members climb with one another's climb", "test_pooled_factors.py"),
    Mutation("samplers/pooled/learning", "Point(r.position, v, None, o)", "Point(r.position, v)",
             "what black boxes returned is forgotten", "test_pooled_factors.py"),
    Mutation("steps/known_points", "    values = values - np.array([density.model_log_density(v, 0.0) for v in points])\n", "",
             "known log densities without the Jacobian", "test_sample_black_boxes.py -k returned"),
    Mutation("samplers/pooled/production", "(self.sure if begun else chains.left()) < len(drawing.members)", "chains.left() < 1",
             "more evaluations than allowed", "test_pooled.py -k budget"),
    Mutation("samplers/pooled/production", "(self.sure if begun else chains.left()) <", "chains.left() <",
             "which row is the last hangs on its draws", "test_pooled.py -k kept"),
    Mutation("samplers/pooled/production", "drawing.ask(n - len(beside))", "drawing.ask(int(min(chains.left(), chains.plan.draws or 99) - len(beside)))",
             "the last round of a run is another", "test_pooled.py -k longer"),
    Mutation("sampling/run", "            with one_thread():\n                run.tell(values)", "            if True:\n                run.tell(values)",
             "fits on as many BLAS threads as there are", "test_sample.py -k blas"),
    Mutation("samplers/pooled/drawing", "sorted(behind[:places])", "sorted(behind[::-1][:places])",
             "who waited for a place waits again", "test_pooled.py -k waits"),
    Mutation("samplers/pooled/drawing", "points, statistics = zip(*(made.pop(0)", "points, statistics = zip(*(made.pop()",
             "of two draws the later is the first", "test_pooled.py -k waits"),
    Mutation("samplers/pooled/learning", "        known, base = evaluations.merge([before, known]), before.size", "        known, base = evaluations.merge([before, known]), 0",
             "known points count as tuning", "test_sample.py -k known_points"),
    Mutation("samplers/known_points", "    if not (rest <= absolute + relative * height).all():", "    if False:",
             "known points of anything are believed", "test_sample.py test_warm_start.py -k 'another_log_density or constant'"),
    Mutation("samplers/known_points", "heights = np.abs(known.log_densities[rows])", "heights = np.abs(known.log_densities)",
             "a hopeless point excuses another posterior", "test_warm_start.py -k far_away"),
    Mutation("samplers/known_points", "        if check.settled and check.comparable:", "        if False:",
             "a single chain believes anything", "test_warm_start.py -k constant"),
    Mutation("samplers/known_points", "    return evaluations.shifted(known, offset)", "    return known",
             "known points keep another constant", "test_pooled.py -k constant"),
    Mutation("samplers/pooled/drawing", "self.members[k] = Frozen(rng, point, state)",
             "self.members[k] = Frozen(rng, Point(point.position, there.log_density), state)",
             "together: what is rejected is retained", "test_pooled.py"),
    Mutation("sampling/workers", "spawn_key=(number,)", "spawn_key=(0,)", "every evaluation has the same noise", "test_sample.py -k noise"),
    Mutation("surrogates/factors/emulator", "beyond = (r - rho) / rho if straight else 0.0", "beyond = 0.0",
             "factors: the tangent's slope without its rise", "test_factored_kamiltonian.py -k 'jacobian or beyond'"),
    Mutation("surrogates/factors/emulator", "turn = along / r if r > 0.0 else 0.0", "turn = 0.0",
             "splines: half of the tangent's slope", "test_splines.py -k jacobian"),
    Mutation("surrogates/factors/emulator", "slope = math.exp(w - value)", "slope = 1.0",
             "factors: a bend without its slope", "test_long_tails.py -k 'jacobian or bend'"),
    Mutation("surrogates/factors/emulator", "jacobian[e.outputs[k] + j, i] = rises * slopes", "jacobian[e.outputs[k] + j, i] = slopes",
             "the slope of the logarithm", "test_positive_outputs.py -k jacobian"),
    Mutation("surrogates/factors/regression", "return np.zeros(sample.outputs.shape[1], np.int64)", "bounds = np.full(sample.outputs.shape[1], LOG)",
             "the logarithm of what may be negative in the model", "test_positive_outputs.py -k has_a_density"),
    Mutation("samplers/kamiltonian/factors/learning", "if not has_a_value(below):", "if has_a_value(below):",
             "counts have a density below 0", "test_positive_outputs.py -k asked"),
    Mutation("samplers/kamiltonian/factors/learning", "outputs[j] <= 1.0 and not has_a_value(above)", "False",
             "probabilities have a density above 1", "test_positive_outputs.py -k asked"),
    Mutation("surrogates/factors/regression", "leaves = known and links.any() and _leaves(found, w, links)", "leaves = False",
             "outputs that cost nothing beyond their bounds", "test_positive_outputs.py -k costs"),
    Mutation("surrogates/factors/regression", "(values[:, links == LOGIT] >= 1.0)", "(values[:, links == LOGIT] >= 2.0)",
             "probabilities above 1", "test_positive_outputs.py -k costs"),
    Mutation("surrogates/factors/regression", "sample.log_densities >= np.median(sample.log_densities)", "sample.log_densities > -np.inf",
             "what underflows far away has no logarithm", "test_positive_outputs.py -k underflow"),
    Mutation("surrogates/factors/emulator", "rises = outputs_k[j] * (1.0 - outputs_k[j])", "rises = outputs_k[j]",
             "the slope of the logit", "test_positive_outputs.py -k jacobian"),
    Mutation("samplers/arrival/search", "gain -= max(0.0, now - rival.own)", "pass", "a bump in the chain's own mode makes others heavy", "test_another_mode.py -k weighed"),
    Mutation("samplers/arrival/search", "rows[rows[:, d] > top - far_in_height(d)]", "rows", "what was on its way has mass", "test_another_mode.py -k way"),
    Mutation("samplers/life", ", elsewhere=search.weighed(self._state.elsewhere))", ")", "nobody weighs", "test_another_mode.py -k weighed"),
    Mutation("samplers/pooled/beginning", "or len(self.places[0]) > self.chains.left()", "", "beginning takes more than is given", "test_first_user.py -k given"),
    Mutation("samplers/pooled/beginning", "self.places, self.tried = self._elsewhere(), True", "self.tried = True", "nobody begins elsewhere", "test_first_user.py -k nowhere_near"),
    Mutation("steps/prior_scale", "self._is_initial(x) or (ours and looks and not climbs)", "self._is_initial(x)",
             "a chain that was put elsewhere looks for no mode", "test_sample_black_boxes.py -k no_number"),
    Mutation("steps/factors/split", "self.start = finite_or_zero(start)", "self.start = start",
             "where the start is no number nobody sees what moves", "test_sample_black_boxes.py -k no_number"),
    Mutation("surrogates/factors/regression", "np.square(rises) * price", "price",
             "an error of the logarithm counts as one of the output", "test_positive_outputs.py -k units_of"),
    Mutation("surrogates/values/products", "            by_t[b] += w * own", "            by_t[b] += 0.9 * w * own",
             "a slope of few products", "surrogates/test_value_regression.py -k compiled"),
    Mutation("samplers/kamiltonian/sampler", '"share": state.share if state.fit else 0.0,\n            "move"', '"share": 1.0,\n            "move"',
             "one share for all draws", "test_step_contract.py -k of_its_own"),
    Mutation("samplers/kamiltonian/scores/sampler", "path = path if isinstance(path, Path) else _standing(state)", "path = _standing(state)",
             "no draw has a trajectory", "test_step_contract.py -k of_its_own"),
    Mutation("samplers/kameleon/local_covariance", "for a in range(whole, x.size):", "for a in range(whole, whole):",
             "the nearest of the last points is not seen", "test_local_moves.py -k nearest"),
    Mutation("surrogates/factors/regression", "return levelled if levelled.polynomial.error < WORSE * found.polynomial.error else found", "return found",
             "factors: no tail is level", "test_long_tails.py -k level"),
    Mutation("surrogates/factors/splines", "linalg.qr(x[rows])[0][:, p:]", "linalg.qr(x[rows])[0][:, :-p]",
             "splines: what grows far out stays", "test_splines.py -k 'bounded or saddle'"),
    Mutation("surrogates/factors/splines", "fit_spline(s[~held], z[~held], outputs[~held], weights[~held])", "fit_spline(s, z, outputs, weights)",
             "splines: chosen by what they were fitted to", "test_splines.py -k held"),
    Mutation("samplers/kamiltonian/factors/sampler", "return state._replace(learning=None, quality=quality, mixture", "return state._replace(quality=quality, mixture",
             "factors: not frozen", "test_factored_kamiltonian.py test_structure.py"),
    Mutation("samplers/kamiltonian/factors/climb", "    if not (promised >= 0.0 and np.isfinite(found.x).all()):", "    if False:",
             "factors: a search that got lost ends the climb", "test_factored_kamiltonian.py -k lost"),
    Mutation("samplers/kamiltonian/factors/learning", "QUANTILE, axis=0)", "0.25, axis=0)",
             "behind black boxes a small sd is centred by the bulk", "test_factored_kamiltonian.py -k centring_follows"),
    Mutation("steps/base", "0.0 if value == -math.inf else math.nan  #", "0.0  #",
             "a failure is an estimate of zero", "test_estimator_work.py -k fails"),
    Mutation("samplers/noise_probe", "if math.isnan(value) or math.isnan(probe.first[0]):", "if False:",
             "what failed is noise", "test_noise_probes.py -k what_failed"),
    Mutation("verdict/doubts", "0.0 < 2.0 * x.min() < x.max()", "0.0 < x.min()",
             "any positive number is a scale near 0", "test_report.py -k lowest"),
    Mutation("verdict/doubts", "w.value < BLUNT and sign < 0.0 and w not in cut", "False",
             "intervals of a scale whose lowest draws are missing", "test_report.py -k lowest"),
    Mutation("verdict/doubts", 'biased = "" if {"move", "beta"} & set(idata["sample_stats"]) else noisy', 'biased = ""',
             "a step that keeps no estimate is usable under noise", "test_report.py -k keeps_no_estimate"),
    Mutation("samplers/kamiltonian/factors/learning", "- 1.5 * expected.std()", "- 150.0 * expected.std()",
             "factors: every chain has arrived", "test_factored_kamiltonian.py -k 'far_away or expected_level'"),
    Mutation("steps/hierarchies/coordinates", "before = [factor[..., i, j] * z[j] for j in range(i)]", "before = []",
             "correlated effects moved as if they were not", "test_coordinates.py -k correlated"),
    Mutation("samplers/chain", "    return sampler.place(sampler.freeze(state), point)", "    return sampler.freeze(state)",
             "frozen with what was cached while tuning", "test_seam.py -k begins_with"),
    Mutation("checkpoint", "    if differ:\n", "    if False:\n", "another run's folder is taken", "test_checkpoint.py -k refused"),
    Mutation("checkpoint", "        if not abs(again - stored) <= 0.01 + 1e-6 * abs(stored):", "        if False:",
             "another model's folder is taken", "test_checkpoint.py -k refused"),
    Mutation("checkpoint", " or stored[:, 1 : self.dim + 1].tobytes() != np.array(points).tobytes():", ":", "other points are told stored values",
             "test_checkpoint.py -k refused"),
    # --- estimators that are estimated with: particles, importance draws ---
    Mutation("particle_filter", "mean + persistence * (parents - mean) + sd", "mean + persistence * parents + sd",
             "particles drift off", "test_particle_filter.py -k slow_filter"),
    Mutation("particle_filter", "            particles.sort()\n", "            pass\n", "particles are not sorted", "test_particle_filter.py -k 'slow_filter or sorting'"),
    Mutation("particle_filter", "if math.isnan(y[t])", "if t < 0", "a missing observation counts", "test_particle_filter.py -k missing"),
    Mutation("gp/sites", "sign = 1.0 - 2.0 * side", "sign = 1.0", "no mirror image", "test_gp_estimator.py -k log_weights"),
    Mutation("gp/sites", "total += linear - f * (nu[j] - 0.5 * tau[j] * f)", "total += linear - f * (nu[j] + 0.5 * tau[j] * f)",
             "weights by another proposal", "test_gp_estimator.py -k log_weights"),
    Mutation("gp/estimator", "rng.choice(self.n_importance, p=special.softmax(log_weights))", "rng.choice(self.n_importance)",
             "latent values without their weights", "test_gp_estimator.py -k latent_values"),
    Mutation("gp/estimator", "np.sqrt(np.maximum(variance - np.square(cross).sum(axis=0), 0.0))", "np.sqrt(np.maximum(variance, 0.0))",
             "predicted with the prior's spread", "test_gp_estimator.py -k prediction"),
    # --- noise, options, drivers ---
    Mutation("steps/noise/demands", "            block = flat[edges[chosen] : edges[chosen + 1]]", "            block = flat[: edges[chosen + 1]]",
             "more than a block is renewed", "test_pseudo_marginal.py -k 'block or anew'"),
    Mutation("steps/options", "    if elsewhere:\n", "    if False:\n", "of what an option is goes unsaid", "test_bad_input.py test_steps.py -k 'said or option'"),
    Mutation("steps/options", "    if preset is not None and preset not in presets:", "    if False:", "any preset is taken", "test_bad_input.py test_presets.py -k 'preset or said'"),
    Mutation("samplers/seam", 'count(int(name == "tune"), ', "count(0, ", "tune=0 is an option", "test_bad_input.py"),
    Mutation("steps/options", "    if missing:\n", "    if False:\n", "an initial point without a variable", "test_bad_input.py"),
    Mutation("steps/base", "if moved or before.position is None or not", "if before.position is None or not",
             "what another step moved goes unseen", "test_steps.py test_step_contract.py -k 'next_to or beside or other or moved'"),
    Mutation("steps/base", "        self.evaluations += 1\n        if auxiliary:", "        self.evaluations += 2\n        if auxiliary:",
             "evaluations are counted twice", "test_arrival.py -k evaluations_and_moves"),
    # --- chains together ---
    Mutation("sampling/workers", "        if len(points) > 1 and not self.compared:", "        if False:", "a batch is believed", "test_batched.py -k mixes"),
    Mutation("verdict/convergence", "own + part.mean(axis=1).var(axis=0, ddof=1)", "own", "a group's chains count as one", "test_pooled.py -k 'nested or apart'"),
    Mutation("samplers/pooled/chains", "            self.rounds += 1\n", "            self.rounds += 0\n", "every evaluation is of the first round", "test_pooled.py -k record"),
    # --- scales ---
    Mutation("surrogates/rescaling", "        log_jacobian += growth_of_width  # exactness hangs on it\n", "",
             "no Jacobian of a move along a scale", "surrogates/test_scales.py"),
    Mutation("surrogates/straightened", "energy = value + _log_jacobian(moves, totals, q)", "energy = value",
             "no Jacobian of straightened coordinates", "surrogates/test_scales.py"),
    Mutation("surrogates/straightened", "            along[k] += by_q * q[i] * (moves.halves[k] * moves.bends[k, i])\n", "            pass\n",
             "a trajectory that does not know that widths change", "surrogates/test_scales.py"),
    Mutation("surrogates/transitions", "log_ratio = new_value - value + log_jacobian", "log_ratio = new_value - value",
             "Jacobian of a move along a scale not used", "surrogates/test_scales.py"),
    Mutation("surrogates/straightened", "            square += (w[i] - moves.origin[i]) ** 2  # D is a ball in w\n",
             "            square += 0.5 * (w[i] - moves.origin[i]) ** 2\n",
             "trajectories have another region than jumps and shares", "test_value_kamiltonian.py surrogates/test_scales.py"),
    Mutation("samplers/kamiltonian/sampler", "z = transitions.in_region(dynamics, current.z)", "z = current.z",
             "a share that measures another region", "test_value_kamiltonian.py"),
    Mutation("samplers/pooled/elite", "half * bends.sum() * away", "0.0 * away",
             "the others follow a chain into the neck", "surrogates/test_scales.py"),
    Mutation("surrogates/rescaling", "if surrogate.known and len(several) > 1:", "if False:",
             "of several groups one alone is straight", "surrogates/test_scales.py -k 'two_scales or each_group'"),
    Mutation("surrogates/rescaling", "np.argsort(-np.concatenate(shares)", "np.argsort(np.concatenate(shares)",
             "what no scale bends comes first", "surrogates/test_scales.py -k each_group"),
    Mutation("surrogates/rescaling", "            result[i] += moves.halves[k]", "            result[i] = moves.halves[k]",
             "the last scale alone says how narrow it is", "surrogates/test_scales.py"),
    # --- what the model says of them ---
    Mutation("surrogates/values/known_scales", "        linear[j] -= normals * slope * scale[j]\n", "",
             "priors without their constants", "surrogates/test_known_scales.py"),
    Mutation("surrogates/values/known_scales", "at_centre = matrix @ (scale[:, None] * factor), matrix @ centre + offset",
             "at_centre = matrix @ (scale[:, None] * factor), matrix @ centre", "priors about another place",
             "surrogates/test_known_scales.py"),
    Mutation("surrogates/values/regression", "        y = heights - features", "        y = heights - 0.0 * features",
             "what is known is learned, and counted twice", "surrogates/test_known_scales.py"),
    Mutation("surrogates/values/regression", "curvature + known_scales.curvature(data.template)", "curvature",
             "a metric that does not see the priors", "surrogates/test_known_scales.py"),
    Mutation("surrogates/values/features", "        value += scales.add_blocks(_blocks(x, n), known, blocks",
             "        value += scales.add_blocks(_blocks(x, n), 0, blocks", "what is known has straight tails, too, and counts twice",
             "surrogates/test_known_scales.py"),
    Mutation("steps/hierarchies/prior_scales", "linear[:n] & linear[n:] & (np.count", "(np.count", "what is linear nearby is linear everywhere",
             "test_prior_scales.py"),
    Mutation("steps/hierarchies/prior_scales", 'coordinates.priors[v].log_density is FAMILIES["NormalRV"]', "True",
             "a Student's t is taken for a normal", "test_prior_scales.py"),
    Mutation("steps/hierarchies/prior_scales", 'or type(op).__module__.startswith("pytensor.link.jax.")', "",
             "a solver written for JAX is asked, and nobody counts", "test_prior_scales.py -k somebody"),
    Mutation("steps/hierarchies/prior_scales", "apart != set(moved.priors)", "False",
             "what is by hand is asked elsewhere than the density is", "test_prior_scales.py"),
    Mutation("steps/hierarchies/prior_scales", "(initial, *draws)", "(initial,)",
             "what is linear about zero is linear where the prior is", "test_prior_scales.py"),
    Mutation("steps/hierarchies/prior_scales", "np.exp(np.minimum(there[n:], 0.0))", "np.ones(n)",
             "farads are none", "test_prior_scales.py"),
    Mutation("steps/hierarchies/coordinates", "    if not prior.own:\n", "    if False:\n",
             "no density where the model does not look at what is no number", "steps/test_written_apart.py -k no_number"),
    Mutation("steps/hierarchies/prior_scales", "np.roll(x[where].reshape(shape), 1, axis=-1)",
             "np.roll(x[where].reshape(shape), -1, axis=-1)", "a walk that runs backwards", "test_prior_scales.py -k walk"),
    Mutation("steps/hierarchies/prior_scales", 'type(steps.op).__name__ != "NormalRV"', "False",
             "a walk of Laplace's steps is taken for a normal one", "test_prior_scales.py -k walk"),
    Mutation("steps/hierarchies/prior_scales", "for variable in apart if moved is None else ():", "for variable in ():",
             "z is taken for mu + sigma z in the model's own coordinates", "test_prior_scales.py"),
    Mutation("steps/hierarchies/prior_scales", "table, count = np.array(rows), len(rows)",
             "table, count = np.array(rows), min(len(rows), len(rows[0]))", "as many data as rows stand for them", "test_prior_scales.py"),
    Mutation("steps/hierarchies/prior_scales", "np.where(normal, log_scale, 0.0)", "log_scale",
             "where a walk begins is one of its steps", "test_prior_scales.py -k walk"),
    Mutation("surrogates/values/monomials", "found.append(np.maximum(squares - np.square(others.T @ block).sum(axis=0), 1e-6 * squares))",
             "found.append(squares)", "x^4 comes behind hundreds, most of it being x^2",
             "surrogates/test_value_regression.py -k mostly_lower"),
    Mutation("surrogates/values/features", "        if far > value or value > x[5]:", "        if far > value:",
             "tails that promise more than was found are believed", "surrogates/test_value_regression.py -k 'dynamics'"),
    Mutation("surrogates/values/features", "            if far > value or value > top:", "            if far > value:",
             "the same, for whole arrays", "surrogates/test_value_regression.py -k 'compiled_value'"),
    Mutation("surrogates/values/straight_tails", "    along = k\n", "    along = 0.0\n",
             "a straight tail's slope is not in its gradient", "surrogates/test_value_regression.py -k 'compiled_value'"),
    Mutation("surrogates/values/straight_tails", "SLOPE + (z.shape[1] - 1) / reach", "SLOPE",
             "straight tails have more mass than the target", "surrogates/test_value_regression.py -k 'hold_little'"),
    Mutation("surrogates/values/regression", "surrogate = surrogate._replace(reach=reach, slope=slope", "surrogate = surrogate._replace(slope=slope",
             "no straight tails", "surrogates/test_value_regression.py -k 'straight_where'"),
    Mutation("surrogates/values/scales", "0.0 if pinned else min(c + 0.5 * b @ top, 0.0)", "c + 0.5 * b @ top",
             "a scale with mass in the neck", "surrogates/test_scales.py"),
    Mutation("surrogates/values/scale_basis", "if not rest @ rest < WORTH * (left @ left):", "if not rest @ rest < left @ left:",
             "every block is a scale", "surrogates/test_scales.py"),
    # --- control variates ---
    Mutation("verdict/control_variates", "inside / inside.mean()", "np.ones_like(inside)", "E_f outside C as well", "test_control_variates.py"),
    Mutation("verdict/control_variates", "weighted, expected = float((weights * h).mean()),", "weighted, expected = float(h.mean()),", "f not weighed",
             "test_control_variates.py"),
    Mutation("samplers/pooled/chains", '(evaluated.move == "audit") | np.isneginf(evaluated.log_densities)', '(evaluated.move == "audit")',
             "what others than audits found beyond the support", "test_control_variates.py -k bulk"),
    Mutation("verdict/control_variates", "if min(shares) < SHARE:", "if max(shares) < SHARE:", "a gate that one of two opens",
             "test_control_variates.py"),
    Mutation("samplers/pooled/checks/audits", "return np.where(inside, f - log_densities + self.typical, -math.inf)",
             "return f - log_densities + self.typical", "C forgotten at the draws", "test_control_variates.py"),
    Mutation("samplers/kameleon/several", "log_step_density(delta, there, gamma, nu) - forward",
             "log_step_density(delta, covariance, gamma, nu) - forward", "inner steps: reverse density at the old point", "test_screened.py -k steps_on"),
    Mutation("samplers/kameleon/several", "x, value, moved, stale = new, new_value, True, not local", "x, value, moved, stale = new, new_value, True, False",
             "inner steps: the covariance of another point", "test_screened.py -k steps_on"),
    Mutation("samplers/kameleon/several", "u[ACCEPT] < math.exp", "u[GLOBAL] < math.exp",
             "inner steps: accepted by the number that chose the kernel", "test_screened.py -k steps_on"),
    Mutation("numerics/elementary", "-second if (quarter + 1) & 2 else second", "-second if quarter & 2 else second",
             "cosines of another quarter", "numerics/test_elementary.py"),
    # --- what is said is true ---
    Mutation("samplers/arrival/quadratic", "heights = height(state.log_densities)", "heights = state.log_densities",
             "1e300 ends a climb", "test_extremes.py"),
    Mutation("verdict/doubts", 'if "ends_elsewhere" in found.attributes:', "if False:", "an end without draws is usable", "test_report.py"),
    Mutation("verdict/convergence", "CONVERGED, FEW = 1.03, 100.0", "CONVERGED, FEW = 1.05, 100.0", "another threshold", "test_report.py"),
    Mutation("verdict/report", "np.median(draws.std(axis=1), axis=0)", "draws.std(axis=(0, 1))", "a lone chain of four is not named", "test_report.py"),
    Mutation("samplers/noise_probe", "(*probe.squares, square)[-late:]", "(*probe.squares, square)[:late]",
             "noise is measured where tuning began", "test_noise_probes.py"),
    Mutation("verdict/doubts", "if k > bound]", "if k > 5.0]", "heavy tails are usable", "test_report.py -k heavy"),
    Mutation("verdict/convergence", "scipy.special.ndtri(1.0 - 0.01 / (2.0 * draws.shape[2]))", "0.0",
             "tails are heavy by chance", "test_report.py -k many_normals"),
    Mutation("steps/noise/noisy_factors", '== "MinibatchOp"', '== ""', "a random part of the data is a likelihood", "test_pseudo_marginal.py -k random_part"),
    Mutation("numerics/step_size", "(1.2 - u**3)", "(0.8 + 0.4 * u)", "no chain enters a narrow end", "test_factored_kamiltonian.py -k funnel"),
    Mutation("verdict/doubts", " and beyond > WORSE * elsewhere", "", "noise is a wall", "test_report.py -k everywhere"),
    Mutation("verdict/doubts", "beyond - 2.0 * error > HOPELESS", "beyond > HOPELESS", "a few moves are a wall", "test_report.py -k no_wall_yet"),
    Mutation("samplers/kamiltonian/values/worth", "affordable = choice.most /", "affordable = 1e9 * choice.most /", "a trial takes as long as it likes",
             "test_kamiltonian_worth.py -k affordable"),
    Mutation("samplers/kamiltonian/values/worth", "if not choice.times and (not alike", "if (not alike", "a dear density's arms are tried on every surrogate",
             "test_kamiltonian_worth.py -k given_times"),
    Mutation("verdict/doubts", "distance.min()) >= LITTLE)", "distance.min()) >= 0.0)", "a prior's end is a wall, a hundredth missing refuses a run", "test_report.py -k 'prior or worth'"),
    Mutation("steps/told/watch", "        if rivals:\n", "        if False:\n", "another mode goes unsaid", "test_another_mode.py"),
    Mutation("samplers/pooled/production", "[*chains.far, *(x for", "[*(x for", "no look from the prior's draws", "test_pooled.py -k prior"),
    Mutation("samplers/pooled/checks/looks", "climb.log_densities[climb.current] >= self.draws.lowest)", "True)",
             "a climb that stopped on a slope has ended", "test_pooled.py -k slope"),
    Mutation("surrogates/factors/regression", "np.argsort(-weights[latest]", "np.argsort(weights[latest]", "a long record is thinned to its lightest rows",
             "test_long_tails.py -k thinned"),
    Mutation("samplers/pooled/checks/looks", "MISSING = 3.0", "MISSING = 9.0", "a mode eight sds away goes unsaid", "test_pooled.py -k missing"),
    Mutation("samplers/pooled/checks/looks", "np.quantile(constants, 0.99)", "np.median(constants)", "a bend is a gap", "test_pooled.py -k missing"),
    Mutation("steps/base", "for n, shown in NUTS_HAS.items() if self.density.has_others}", "for n, shown in NUTS_HAS.items() if False}",
             "NUTS' names beside NUTS", "test_sampler_warnings.py -k names_of_their_own"),
    Mutation("samplers/kamiltonian/values/refits", "history.count_distinct(z[now > SPREAD * then.max()]) >= FAR",
             "np.count_nonzero(now > SPREAD * then.max()) >= FAR", "one state, rejected for long, is a mode",
             "test_value_kamiltonian.py -k mode_that_was"),
    Mutation("verdict/report", "for chain in strange[:SHOWN]:", "for chain in strange:", "a line for each of sixteen chains",
             "test_report.py -k strange"),
    Mutation("steps/told/watch", "discrete=discrete)", "discrete=False)", "a discrete variable is taken for NUTS's",
             "test_sampler_warnings.py -k discrete"),
    Mutation("steps/told/watch", "if not density.noisy and (solved := sampled_beside(step, solves)):", "if False and (solved := sampled_beside(step, solves)):",
             "what other steps solve goes unsaid", "test_sampler_warnings.py test_steps.py"),
    Mutation("steps/factors/returned", "            if said:\n", "            if False:\n", "what a black box returned is not named", "test_exceptions.py -k returned"),
    Mutation("sampling/arguments", "if value.shape != shapes[name]:", "if False:", "initvals of another shape", "test_sample.py test_bad_input.py"),
    Mutation("steps/told/watch", "if tune not in (None, draws):", "if False:", "another length of tuning goes unsaid", "test_steps.py test_sampler_warnings.py"),
    Mutation("steps/methods", "if known is step or (step is None and issubclass(known, KernelStep)):", "if known is step:",
             "unregister() forgets", "test_steps.py -k register"),
    Mutation("numerics/compiled", "file._source_stamp = (file._source_stamp, SOURCES)", "pass", "old machine code after an edit", "test_compiled.py"),
    # not the flag inside: the linker's cache would keep that machine code under the name of the strict one
    Mutation("steps/pytensor_internals", "if type(mode.linker) is NumbaLinker and", "if False and",
             "two machine codes", "test_pytensor_internals.py -k order_of_the_graph"),
    Mutation("samplers/kamiltonian/factors/surface", "if uniforms[k, 2] < probability:", "if True:",
             "every inner transition is accepted", "test_factored_kamiltonian.py -k exact"),
    Mutation("samplers/kamiltonian/factors/surface", "if uniforms[k, 2] < probability:", "if uniforms[k, 2] < probability**0.5:",
             "inner transitions are accepted too often", "test_factored_kamiltonian.py -k probability_of_its"),
    Mutation("samplers/kamiltonian/factors/surface", "MAX_LEAPFROG = 200", "MAX_LEAPFROG = 60", "a walk along thin ridges", "test_factored_kamiltonian.py -k hundredth"),
    Mutation("verdict/report", "if int(attributes.get(\"factors\", 0)) == 1 and not noisy:", "if \"factors\" in attributes and not noisy:",
             "a hierarchy is to be learned as a whole", "public/test_report.py"),
    Mutation("steps/factors/split", "if len(terms) < 32 else", "if True else", "more terms than operands", "steps/test_alike.py -k more_terms"),
    Mutation("steps/pytensor_internals", "if len(outputs) != 1 or getattr(function, \"profile\", None):", "if len(outputs) != 1:",
             "what a profile would not see", "test_pytensor_internals.py -k between_its_containers"),
    Mutation("steps/pytensor_internals", "raise_with_op(function.maker.fgraph, node, thunk, storage_map=machine.storage_map)", "raise",
             "which Op raised is not said", "test_pytensor_internals.py -k between_its_containers"),
    Mutation("steps/pytensor_internals", "return tuple(v if v.flags.c_contiguous and v.flags.writeable else v.copy(order=\"C\") for v in values)",
             "return tuple(values)", "shared values with gaps between them", "test_pytensor_internals.py -k shared_now"),
    Mutation("samplers/kamiltonian/factors/surface", "varied(step_size, uniforms[k, 0])", "varied(step_size, uniforms[k, 0]) * (1.0 if u[0] > 0.0 else 0.4)",
             "a step depends on the point", "test_factored_kamiltonian.py -k reversible"),
    # --- angles ---
    Mutation("samplers/life", "if window is not None and not window.contains(self._proposal.position):", "if False:",
             "an angle's chain leaves the period", "samplers/test_circles.py"),
    Mutation("samplers/pooled/chains", "window is None or bool(window.contains(request.position))", "True",
             "chains together leave the period", "samplers/test_circles.py"),
    Mutation("samplers/life", "point = point._replace(position=self._state.window.wrapped(point.position))", "pass",
             "another step puts an angle where no move leads back", "samplers/test_circles.py -k beside"),
    Mutation("verdict/report", "    moving |= {name: directions.unrolled(x) for name, x in across.items()}\n", "",
             "an angle across pi is judged as a number", "test_report.py -k direction"),
    # --- what exactness hangs on, where nothing else is changed ---
    Mutation("gp/estimator", "log_normalizer = 0.5 * float(sites.nu @ mean)", "log_normalizer = 0.25 * float(sites.nu @ mean)",
             "another Gaussian's normaliser", "gp/test_gp_estimator.py"),
    Mutation("samplers/gaussian_mixture/moves", "cancel.\n    return _position(z_new, centre, factor), _independent(z, z_new, pihat)",
             "cancel.\n    return _position(z_new, centre, factor), 0.0", "the auxiliary move as if it were symmetric",
             "test_gaussian_mixture.py"),
    Mutation("samplers/kameleon/pca", "        there = self.covariance(model, y_new)\n", "        there = state.covariance\n",
             "the way back along the directions of the start", "test_pca_kameleon.py"),
    Mutation("samplers/kameleon/shear", "step = math.exp(shear.log_scale) * (", "step = (1.0 + abs(r[0])) * math.exp(shear.log_scale) * (",
             "a sheared step that depends on where it begins", "test_shear.py"),
    Mutation("samplers/kamiltonian/sampler", "proposal.log_q_ratio, proposal.carry.kernel > 0, proposal", "proposal.log_q_ratio, True, proposal",
             "the walk with the surrogate's share", "test_value_kamiltonian.py test_kamiltonian_mixture.py"),
    Mutation("samplers/kamiltonian/values/sampler", "    step = proposal.position - x\n", "    step = proposal.position - 0.9 * x\n",
             "a walk that drifts", "test_value_kamiltonian.py test_kamiltonian_mixture.py"),
    Mutation("samplers/modes/sampler", "not path.moved or not arrives(state.catalogue, path.x, mode)", "not path.moved",
             "a trajectory within a mode ends in another", "test_modes.py"),
    Mutation("samplers/shape_learners/base", "min(1.0, (iteration / 200.0) ** -0.6) if self.diminishing else 1.0", "1.0",
             "adaptation that does not fade", "test_shape_learners.py"),
    Mutation("surrogates/values/regression", "        coefficients = _solved(problem, basis, best.ridge)", "        coefficients = solve_stubbornly(problem, best.ridge)",
             "scales beside monomials are not concave", "surrogates/test_scales.py -k beside"),
    Mutation("surrogates/values/regression", "best.basis.family.scales and not len(surrogate.monomials)", "best.basis.family.scales",
             "monomials beside scales go on upwards", "surrogates/test_scales.py -k beside"),
    Mutation("surrogates/values/regression", "            names += [family.name for family in library if family.scales]", "            pass",
             "scales get no monomials at a short refit", "surrogates/test_scales.py -k beside"),
    Mutation("steps/base", "if begins and self.arrives else None", "if False else None",
             "a start without density is refused", "test_steps.py -k without_density"),
    Mutation("steps/prior_scale", "        if not self._is_initial(x):\n            return None\n        scale", "        scale",
             "a start that somebody chose is left", "test_steps.py -k without_density"),
    Mutation("steps/base", "search.largest(state.elsewhere, state.looked)", "0.0", "another mode is in no statistic", "test_another_mode.py"),
    Mutation("verdict/doubts", 'if "other_mode" in found.attributes:', "if False:", "another mode is no doubt", "test_report.py -k not_been_in"),
    Mutation("samplers/life", "self._set(stage=stage.beside(*found, self.density.circles))", "return None", "where black boxes are learned nobody looks for modes", "test_another_mode.py -k boxes"),
    Mutation("samplers/arrival/search", "return 0.0 if looked else math.nan", "return 0.0", "nobody has looked, and there is nothing", "test_another_mode.py -k nobody"),
    Mutation("verdict/endless", "if slope > -3.05 and", "if slope > -1.5 and", "what has no mean is usable", "test_endless.py"),
    Mutation("verdict/endless", " and heights[1] > heights[0] - max(-slope, 2.0) * math.log(100.0) - 4.0", "", "a tail of no mass is one", "test_endless.py -k cliff"),
    Mutation("verdict/convergence", "np.fmin(judged.ess, judged.tail) >= ENOUGH", "judged.ess >= ENOUGH", "two visits to an end make an interval", "test_report.py -k visits"),
    Mutation("samplers/adaptive_metropolis", "min(200 * d, 400)", "200 * d", "PyMC's 1000 tuning draws end before the first local move", "test_life.py -k within"),
    Mutation("steps/base", 'if self.life.kind == "look" and self.life.sampler.climbs_by_itself:', "if False:", "a look ends the run", "test_another_mode.py -k raises"),
    Mutation("samplers/kamiltonian/factors/learning", "1e-6 / np.square(np.maximum(unit, np.abs(outputs)))", "1e-6 + 0.0 * outputs",
             "an output's precision has a least in units of one", "test_first_user.py -k unit"),
    Mutation("samplers/chain", "ddot(x, x) < 1e200", "x.dot(x) < 1e200", "NumPy warns where squares overflow", "samplers/test_metropolis.py"),
    Mutation("samplers/pooled/checks/looks", " or self._is_there(k)", "", "a look that was cut short is not told",
             "samplers/test_pooled.py -k cut_short"),
    Mutation("samplers/pooled/beginning", "begun = chains.enclose(begun)", "pass",
             "known points leave an angle's chains on the whole line", "public/test_angles.py -k period"),
    Mutation("samplers/arrival/circles", "<= 0.5 * PERIOD", "<= 0.45 * PERIOD", "some angles have no point in the window",
             "samplers/test_circles.py"),
    Mutation("samplers/pooled/production", "by_themselves = chains.learner.sampler.climbs_by_itself and", "by_themselves = False and",
             "beside black boxes nothing looks", "public/test_sample_black_boxes.py -k look"),
    Mutation("samplers/pooled/production", "if few < looks.FEW or not by_themselves", "if not by_themselves",
             "looks begin that cannot end", "public/test_sample_black_boxes.py -k look"),
    Mutation("sampling/arguments", "if boxes and not isinstance(initvals, str):", "if False:",
             "a look begins where the user has kept a solver from", "public/test_sample_black_boxes.py -k look"),
    Mutation("samplers/pooled/chains", "if not any(np.array_equal(x, position) for position in looks):", "if True:",
             "a box that raises in a look ends the run", "public/test_sample_black_boxes.py -k raises"),
    Mutation("samplers/pooled/chains", "(r.position for r in self._asked if r.move == \"look\")", "(r.position for r in self._asked)",
             "a box that raises at a draw is none", "public/test_sample_black_boxes.py -k raises"),
    Mutation("samplers/pooled/tuning", "(self._is_lost(k, depths) or self._is_slight(k))", "self._is_lost(k, depths)",
             "a sentinel stays in a mode of no mass", "samplers/test_pooled_factors.py -k stays_where"),
    Mutation("samplers/pooled/tuning", "here + volumes[1] + d", "here + d", "a wide place has no mass", "samplers/test_pooled_factors.py -k stays_where"),
    Mutation("samplers/arrival/search", "x = x if window is None else window.wrapped(x)", "pass",
             "an angle's next period is another mode", "test_another_mode.py -k angle"),
    Mutation("samplers/pooled/checks/looks", "np.concatenate([np.zeros((1, len(x))), beside, -beside])", "np.zeros((1, len(x)))",
             "draws behind the end of a period are none", "samplers/test_pooled.py -k angle"),
    Mutation("samplers/pooled/checks/looks", "x = x if window is None else window.wrapped(x)", "pass",
             "draws in an angle's next period are none", "samplers/test_pooled.py -k angle"),
    Mutation("samplers/pooled/production", "chains.rng.spawn(len(everyone))", "[chains.members[0].rng] * len(everyone)",
             "looks take a chain's random numbers", "public/test_sample_black_boxes.py -k change_no_draw"),
    Mutation("samplers/pooled/production", "first = int(np.argmax(np.isfinite(evaluated.log_densities)))", "first = 0",
             "looks begin at a start without a density", "public/test_sample_black_boxes.py -k look"),
    Mutation("samplers/kamiltonian/factors/learning", "linear[same], result[same] = before[same], np.square(before[same])", "pass",
             "an error of a sum of squares costs nothing", "steps/test_sums_of_squares.py"),
    Mutation("surrogates/factors/regression", "        sign=np.array([_sign(slopes[layout.outputs_of(k)]) for k in range(layout.size)]),", "        sign=layout.added.astype(float),",
             "a sum of squares falls for ever", "steps/test_sums_of_squares.py"),
    Mutation("steps/factors/black_boxes", "if len(found := users.get(v, [])) == 1 else", "if len(found := users.get(v, [])) == 9 else", "a chi-squared is a prediction", "steps/test_black_boxes.py"),
    Mutation("steps/factors/black_boxes", 'name in ("mul", "neg", "log", "add", "sub", "identity")', 'name in ("mul", "neg", "log", "add", "sub", "identity", "sqr", "pow")',
             "a prediction is a log likelihood", "steps/test_black_boxes.py"),
    Mutation("steps/factors/black_boxes", "return all(variable.type.broadcastable)", "return True", "a sum is learned, not its terms", "steps/test_black_boxes.py"),
    Mutation("steps/factors/black_boxes", " and made.broadcastable == variable.type.broadcastable", "", "one number is learned many times", "steps/test_black_boxes.py"),
    Mutation("steps/factors/black_boxes", " or not cuts.isdisjoint(node.outputs)", "", "a likelihood is known twice", "steps/test_black_boxes.py"),
    Mutation("verdict/endless", "if flat and slope > -1.05 else", "if flat else", "a scale of three observations is improper", "test_endless.py"),
    Mutation("checkpoint", "        if not np.isfinite(row[self.dim + 1]):  # it may have raised, in a look\n            return\n", "",
             "a run whose last look raised cannot be resumed", "test_checkpoint.py -k last"),
    Mutation("samplers/pooled/chains", ' and requests[k].move != "look"', "", "a solver that raises in a look cannot be evaluated", "public/test_sample_black_boxes.py -k raises"),
    Mutation("steps/factors/black_boxes", "elsewhere = ancestors([*often, *(v", "elsewhere = ancestors([*(v", "what is broadcast is added once", "steps/test_black_boxes.py"),
    Mutation("verdict/report", "and _missed(attributes) > 0.5:", "and False:", "one climb vouches for all", "public/test_report.py -k verdict_is_of_one"),
]  # fmt: skip


def mutated(text: str, mutation: Mutation) -> str:
    """The module's text with the change made.

    Raises
    ------
    ValueError
        Unless the text to replace is found exactly once.
    """
    found = text.count(mutation.old)
    if found != 1 or mutation.old == mutation.new:
        raise ValueError(
            f"{mutation.module}.py has {mutation.old!r} {found} times, not once: bring the mutation "
            f"({mutation.reason}) up to date."
        )
    return text.replace(mutation.old, mutation.new)


def passes(folder: Path, arguments: list[str]) -> bool:
    """Whether the tests pass in ``folder``. In a fork: PyMC is imported once, the package and its tests anew."""
    log = folder / "pytest.log"
    child = os.fork()
    if child == 0:
        status = 99
        try:
            with log.open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
                os.chdir(folder)
                ours = ("tests", "benchmarks", "pymc_kameleon")
                for name in [n for n in sys.modules if n.split(".")[0] in ours]:
                    del sys.modules[name]
                sys.path[:] = [str(folder), *(p for p in sys.path if p not in ("", str(ROOT)))]
                os.environ["PYTHONPATH"] = str(folder)  # of the processes that tests start
                numba.config.CACHE_DIR = str(folder / "numba")
                status = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *arguments])
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, 1, 2):  # 2: the change broke the import of a test, which is noticed too
        raise RuntimeError(f"pytest {' '.join(arguments)} did not run:\n{log.read_text()[-2000:]}")
    return status == 0


def commands(tests: str) -> list[list[str]]:
    """The arguments of pytest: a file, and what is to be chosen from it."""
    import shlex

    found: list[list[str]] = []
    words = shlex.split(tests)
    while words:
        word = words.pop(0)
        if word == "-k":
            found[-1] += ["-k", words.pop(0)]
        else:
            [path] = (ROOT / "tests").rglob(word)
            found.append([str(path.relative_to(ROOT))])
    return found


def run(folder: Path, mutation: Mutation, whole: bool) -> str:
    """Which tests noticed; empty for a survivor. ``whole``: after those that are named, the whole fast suite."""
    path = folder / "pymc_kameleon" / f"{mutation.module}.py"
    original, times = path.read_text("utf-8"), path.stat()
    path.write_text(mutated(original, mutation), "utf-8")
    try:
        for arguments in [*commands(mutation.tests), *([["tests"]] if whole else [])]:
            if not passes(folder, arguments):
                return " ".join(arguments)
        return ""
    finally:  # the same file as before, for Numba's cache
        path.write_text(original, "utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def main(numbers: list[int], whole: bool = True) -> int:
    """Print the table; the number of survivors."""
    survivors, controlled = 0, False
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for part in PARTS:
            source = ROOT / part
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, folder / part, ignore=ignored)
            elif source.exists():
                shutil.copy2(source, folder / part)
        for number in numbers:
            mutation, began = MUTATIONS[number], time.perf_counter()
            noticed = run(folder, mutation, whole)
            if noticed == "tests" and not controlled:  # the control: by the change, and not by what the copy lacks
                if not passes(folder, ["tests"]):
                    raise RuntimeError(
                        f"The fast suite fails without a change:\n{(folder / 'pytest.log').read_text()[-2000:]}"
                    )
                controlled = True
            survivors += not noticed
            print(
                f"| {number} | {mutation.module} | {mutation.reason} | {noticed or 'SURVIVES'} | "
                f"{time.perf_counter() - began:.0f} s |",
                flush=True,
            )
    print(f"{len(numbers)} mutations, {survivors} survive")
    return survivors


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--named"]
    chosen = [int(word) for word in words] or list(range(len(MUTATIONS)))
    sys.exit(bool(main(chosen, whole="--named" not in sys.argv)))
