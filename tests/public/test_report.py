"""``pk.report``: the verdict, and that it names what was planted."""

import itertools
import logging
import math
import re
from functools import partial

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray
from pytensor.compile.ops import wrap_py

import pymc_kameleon as pk
from pymc_kameleon.verdict import convergence, directions, doubts, of_steps, to_try
from tests.support.hierarchies import BlackBox


class Run(dict):
    """What report reads of an InferenceData."""


def run(n=60, chains=16, shift=0.0, share=1.0, **attributes):
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((chains, n, 3))
    draws[5 % chains, :, 1] += shift
    shares = np.ones((chains, n))
    shares[5 % chains] = share
    posterior = az.convert_to_dataset({"mu": draws[:, :, 0], "theta": draws[:, :, 1:]})
    posterior.attrs |= {
        "evaluations": 1500, "evaluations_tuning": 500, "rounds": 100, "seconds": 50.0, "nonfinite": 0,
        "surrogate": "polynomial", "residual_sd": 0.1, "uncovered": 0.0,
        "groups": [k // 4 for k in range(chains)],
    } | attributes  # fmt: skip
    moves = np.where(rng.random((chains, n)) < 0.9, "surrogate4", "global")
    stats = az.convert_to_dataset(
        {"share": shares, "accept": np.where(moves == "global", 0.2, 0.9), "diverging": np.zeros((chains, n), bool)}
    )
    stats["move"] = (("chain", "draw"), moves)
    return Run(posterior=posterior, sample_stats=stats)


def put(found, **statistics):
    """The run with these statistics: the same for all draws, one a chain, or one a draw."""
    stats = found["sample_stats"]
    for name, value in statistics.items():
        column = np.reshape(value, (-1, 1)) if np.ndim(value) < 2 else value
        stats[name] = stats["accept"].dims, np.broadcast_to(column, stats["accept"].shape)
    return found


def of_step(statistics, **options):
    """What ``pm.sample`` returned, with these statistics."""
    found = run(chains=4, tuning_steps=500, **options)
    found["posterior"].attrs = {"tuning_steps": 500}
    return put(Run(found, sample_stats=found["sample_stats"].drop_vars("share")), **statistics)


USABLE = "Usable: standard error"
LEARNED = {"residual_sd": [0.1, 0.3, 0.2, 0.1], "uncovered": [0.0, 0.02, 0.0, 0.04], "surrogate": 1}
SAID = {
    "a good run": (
        {},
        [
            f"{USABLE} 3.2% of a posterior sd, every mean within 10%.\nIntervals of 90% hold 85 to 95%.\n",
            "1500 evaluations of the log density, 500 of them for tuning, in 100 rounds of 0.5 s",
            "of which 90% were accepted; of the random walk's 20%",
        ],
        ["Chain ", "To try next"],
    ),
    # 2.9 standard errors for three parameters, of 983 effective draws; with a quarter of these intervals are rough
    "fewer draws": (
        {"n": 20},
        [
            f"{USABLE} 5.8% of a posterior sd, every mean within 17%.\n"
            "Intervals are rough: for those it takes 400 effective draws, at their ends too",
        ],
        [],
    ),
    "never judged": ({"uncovered": 1.0}, ["tuning ended too soon after its last fit"], ["far too low"]),
    "judged": ({"uncovered": 0.02}, ["2% of the chains' last tuning states"], []),
    "climbs that met": (
        {"climbs": 16, "climbs_met": 16},
        [USABLE, "16 of 16 climbs met: at 95 % no basin with more than 17% of the starts is missing."],
        [],
    ),
    "a climb that did not": (
        {"climbs": 16, "climbs_met": 15, "ends_elsewhere": "mu = 3.5"},
        ["Not usable: a climb ended where no draws are, at mu = 3.5."],
        [],
    ),
    "probes that missed": (
        {"probes": 40, "probes_missed": 2, "missed_where": "mu = 3.5"},
        [
            "Not usable: part of the posterior may be missing.", "2 of 40 points drawn from the flattened surrogate",
            "near mu = 3.5", "initvals='prior' to compare",
        ],
        [],
    ),
    "probes": ({"probes": 40, "probes_missed": 0}, [USABLE, "40 points drawn from the flattened surrogate"], []),
    "a chain that is not covered": (
        {"share": 0.2}, ["Chain 5 spent much of its time where the log density is above the surrogate's"], [],
    ),
    "few draws": ({"n": 12, "chains": 6}, ["Not usable"], []),
    "failures": (
        {"nonfinite": 300, "surrogate": "none"},
        ["300 of 1500 evaluations were not finite", "random-walk moves did all of the work"],
        ["ends at edges"],
    ),
    "most has no density": ({"nonfinite": 1200}, ["1200 of 1500 evaluations were not finite", "ends at edges"], []),
    "one mode": ({"modes": 1}, [], ["modes"]),
    "one black box": (
        {"factors": 1, "worst_factor": "solver"}, ["The surrogate (of the black box) was off"], ["boxes", "hardest"],
    ),
    "a black box that is off": (
        {"factors": 1, "worst_factor": "solver", "residual_sd": 2.0},
        ["as a whole: step=pk.KamiltonianStep(learn=\"all\"), or pm.sample(step=pk.FastKameleonStep())"],
        [],
    ),
    "black boxes that are off": ({"factors": 6, "worst_factor": "solver", "residual_sd": 2.0}, [], ["as a whole"]),
    "a noisy black box that is off": (
        {"factors": 1, "worst_factor": "solver", "residual_sd": 2.0, "noisy": "pf"}, [], ["as a whole"],
    ),
    "all learned as a whole": ({"residual_sd": 2.0}, ["another parametrisation"], ["as a whole"]),
    "two black boxes": (
        {"factors": 2, "worst_factor": "solver"},
        ["The surrogate (of 2 parts of black boxes, one by one, that of solver the hardest) was off"],
        [],
    ),
    "no climb": (
        {"climbs": 0, "no_climb": "none begins under noise"},
        ["No climb has ended that could tell of other modes: none begins under noise."],
        ["black boxes"],
    ),
    "what steps learned": (  # of the chain whose surrogate is worst; and what no chain can tell
        {"statistics": LEARNED},
        [
            "The worst chain's surrogate (quadratic) was off by 0.3 out of sample",
            "at most 4% of a judged chain's last tuning states lay where its surrogate is far too low",
            "It made 92% of the moves, of which 90% were accepted; of the random walk's 20%.",
            "a mode that none of them has come to is missing from all, and from R-hat.",
        ],
        ["No climb"],
    ),
    "black boxes of steps": (
        {"statistics": LEARNED | {"factors": 3, "worst_factor": [0, 2, 0, 0]}},
        [
            "(of 3 parts of black boxes, one by one, number 2 (from 0) the hardest) was off by 0.3",
        ],
        ["No climb has looked"],
    ),
    "a step of whose chains none has looked": (
        {"statistics": LEARNED | {"other_mode": math.nan}},
        ["No climb has looked for other modes: none has ended in this tuning"],
        ["of the mode that these chains are in"],
    ),
    "a step that a chain was too short to judge": (
        {"statistics": LEARNED | {"uncovered": [0.0, 1.0, 0.34, 1.0]}},
        ["at most 34% of a judged chain's last tuning states"],
        ["tuning ended too soon"],
    ),
    "a step that no chain has judged": (
        {"statistics": LEARNED | {"uncovered": 1.0}}, ["tuning ended too soon after its last fit"], ["far too low"],
    ),
    "a step that learned nothing": (
        {"statistics": LEARNED | {"surrogate": [1, 0, 1, 1]}},
        ["Tuning ended in a chain before a surrogate was learned"],
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SAID)
def test_what_is_said(case):
    """The first phrase, where it is a verdict, first of all."""
    options, phrases, absent = SAID[case]
    text = pk.report(of_step(**options) if "statistics" in options else run(**options))
    assert [phrase for phrase in phrases if phrase not in text] == []
    assert [phrase for phrase in absent if phrase in text] == []
    if phrases and phrases[0].startswith(("Usable", "Not usable")):
        assert text.startswith(phrases[0])


def test_what_is_cut_off_is_told_to_go_on():
    """Of ends only where they are not known: see the prior that ends, below."""
    judged = convergence.Judgement(2000.0, 1.0, math.nan)
    attributes = {"tuning_steps": 500}
    found = to_try.sentence(None, None, attributes, judged, 1, 2000.0, 500, noise=("", 0.0), cut=True, biased=False)
    assert list(found) == [
        "To try next: 2 times the draws and the tuning, pm.sample(1000, tune=1000), the rest as before."
    ]


def noisy_model():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("estimate", pk.NoisyLogLikelihood(lambda rng, x: -0.5 * x**2 + rng.standard_normal())(x))
    return model


def test_noise_is_named_and_no_parametrisation_is_advised_for_it():
    model = noisy_model()
    text = pk.report(run(residual_sd=1.2), model)
    assert "in units of the log density, the noise of estimate included" in text
    assert "less noise, if there is much: it was not measured (more work for the estimator of estimate)" in text
    assert "parametrisation" not in text
    assert "another parametrisation" in pk.report(run(residual_sd=1.2))


def test_hierarchies_are_to_be_non_centred_where_there_may_be_some_that_are_not():
    words = ("fewer unknowns)", "fewer unknowns, non-centred hierarchies)")
    bad = partial(of_step, LEARNED | {"residual_sd": 2.0})
    with pm.Model() as flat:
        pm.Normal("x")
    with pm.Model() as hierarchy:
        pm.Normal("x", 0.0, pm.HalfNormal("sigma"))
    with pm.Model() as known:  # a location is no funnel
        pm.Normal("x", pm.Normal("mu"))
    moved = put(bad(), noncentred=2)
    for made, model, may_be in (
        (bad(), None, True), (bad(), hierarchy, True), (bad(), flat, False), (bad(), known, False),
        (moved, None, False),
        (run(residual_sd=2.0, centred=0), None, False), (run(residual_sd=2.0, centred=1), None, True),
    ):  # fmt: skip
        assert words[may_be] in pk.report(made, model)


@pytest.mark.parametrize("sd", [1.3, 2.5])
def test_the_measured_noise_is_told_and_less_is_advised_where_it_is_too_much(sd):
    """What is best is not to be made less, and what the surrogate cannot know is no fault of it."""
    noise = [1.0] * 3 + [sd, math.nan] + [1.0] * 11  # NaN: too few pairs
    made = put(run(residual_sd=1.2 * sd), noise_sd=noise, work=40.0)
    for text in (pk.report(made, noisy_model()), pk.report(made)):
        assert f"had a standard deviation of {sd} late in tuning, in the noisiest chain (1.2 to 1.5 is best)" in text
        assert "work is 40, 40" in text
        assert ("less noise" in text) == (sd > 2.0)
        assert "parametrisation" not in text
    assert "another parametrisation" in pk.report(put(run(residual_sd=5.0), noise_sd=noise))


def test_two_steps_on_one_noisy_model_have_their_noise_told():
    """PyMC puts equal names of two steps into one statistic with an axis more."""
    made = run()
    for name, value in (("noise_sd", 1.3), ("work", 40.0)):
        both = np.stack([np.full(made["sample_stats"]["accept"].shape, v) for v in (value, math.nan)], axis=2)
        made["sample_stats"][name] = (("chain", "draw", f"{name}_dim"), np.nan_to_num(both, nan=value / 2))
    assert "had a standard deviation of 1.3 late in tuning" in pk.report(made, noisy_model())
    assert "Other steps drew some of the variables" not in pk.report(made, noisy_model())
    put(made, kameleon_lp=0.0)
    assert "Other steps drew some of the variables: where estimate depends on those" in pk.report(made, noisy_model())


@pytest.mark.parametrize(("failed", "moves", "wall"), [(16, 326, False), (160, 3260, True), (30, 326, True)])
def test_few_moves_that_fail_beyond_the_outermost_draws_are_no_wall_yet(failed, moves, wall):
    """.049 of 326 moves is .04 within two standard errors (.012), of 3,260 it is not (.004)."""
    n = 10 * moves + 1
    x = np.arange(n, dtype=float)[None]
    accept = np.ones((1, n))
    accept[0, n - failed :] = 0.0
    assert doubts._moves_fail_beyond(x, np.ones((1, n), bool), accept) == wall


def test_a_step_that_keeps_no_estimate_is_not_usable_on_a_noisy_model():
    made = run()
    assert pk.report(made, noisy_model()).startswith(USABLE)
    del made["sample_stats"]["move"]
    assert pk.report(made).startswith(USABLE)
    text = pk.report(made, noisy_model())
    assert text.startswith("Not usable: estimate is noisy, and these steps draw from another distribution.")
    assert "too wide" in text
    assert "To try next" not in text  # more draws of it are no help
    put(made, beta=1.0)  # sequential Monte Carlo retains estimates
    assert pk.report(made, noisy_model()).startswith(USABLE)


def test_a_generator_that_no_step_knows_of_is_not_usable():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("like", BlackBox(lambda x: -0.5 * (x - np.random.normal(0.0, 0.1)) ** 2)(x))  # noqa: NPY002
    for text in (pk.report(run(), model), pk.report(run(hidden_noise="BlackBox"))):
        assert re.match(r"Not usable: .*BlackBox.* seems to draw random numbers that no step knows of\.", text), text
        assert "NoisyLogLikelihood" in text
        assert "To try next" not in text
    assert pk.report(run(), noisy_model()).startswith(USABLE)  # its generator is a step's own


def test_an_unknown_that_never_moved_is_not_usable():
    """Where all chains begin at one point, R-hat says nothing of a step that never accepts."""
    with pm.Model() as model:
        pm.Normal("mu"), pm.Normal("theta", shape=2)
        pm.Deterministic("constant", pm.Normal("stuck") * 0.0)
    made = run()
    for name in ("stuck", "constant"):
        made["posterior"][name] = made["posterior"]["mu"] * 0.0 + 1.5
    text = pk.report(made, model)
    assert text.startswith("Not usable: stuck never moved.")
    assert "The same in every draw of every chain: stuck. " in text
    del made["posterior"]["stuck"]
    assert pk.report(made, model).startswith(USABLE)
    assert ", but for constant." in pk.report(made).splitlines()[0]  # nobody says what it is


def test_nine_draws_are_not_judged():
    with pytest.raises(ValueError, match="got 6 of 9"):
        pk.report(run(n=9, chains=6))


def with_draws(draws, wall=math.inf, lost=20.0, **attributes):
    """A run of one parameter; from beyond the wall no move has a chance: there the log density is lower by ``lost``."""
    found = run(n=draws.shape[1], chains=len(draws), **attributes)
    found["posterior"] = az.convert_to_dataset({"x": draws}).assign_attrs(found["posterior"].attrs)
    accept = accepted(np.abs(draws) > wall)
    return pk.report(put(found, accept=accept, energy_error=np.where(accept > 0.0, 0.1, lost)))


def accepted(hopeless):
    """Acceptance probabilities where moves from these draws have no chance."""
    accept = np.ones(hopeless.shape)
    accept[:, 1:][hopeless[:, :-1]] = 0.0
    return accept


@pytest.mark.parametrize(("shift", "rough"), [(0.0, False), (0.35, True)])
def test_intervals_that_chains_alone_make_rough_are_told_to_go_on(shift, rough):
    """Effective draws are enough: R-hat between the groups is 1.00, 1.02."""
    draws = np.random.default_rng(1).standard_normal((16, 800))
    draws[:4] += shift
    text = with_draws(draws)
    assert text.startswith("Usable")
    assert ("Intervals are rough" in text) == ("To try next: 2 times the evaluations" in text) == rough
    assert "effective draws, at their ends too" not in text  # what is met is no reason


def test_the_log_the_report_and_target_ess_have_one_rule():
    for rhat, ess, nested in itertools.product((1.0, 1.025, 1.04, 1.2), (50.0, 150.0), (math.nan, 1.0, 1.04)):
        judged = convergence.Judgement(ess, rhat, nested)
        usable = convergence.verdict(judged, 3).startswith(convergence.USABLE)
        assert usable == convergence.is_enough(judged, convergence.FEW)
        if "R-hat" in (said := convergence.verdict(judged, 3)):  # which of the two
            assert ("nested R-hat" in said) == (not math.isnan(nested))
        assert usable == ((rhat if math.isnan(nested) else nested) < 1.03 and ess >= 100.0)  # as README and docs say


def test_what_cannot_be_evaluated_stands_in_the_verdict():
    for failed, told in ((645, True), (30, False)):
        said = pk.report(run(failed=failed, failed_where="last y = nan")).split("\n")[0]
        assert said.startswith("Usable")
        assert ("of what the model can evaluate" in said) == told


def test_what_has_no_finite_log_density_does_too():
    """Of ``pm.sample``'s draws: NaN and minus infinity are one count."""
    for chains, told in ((4, True), (1, False)):  # 8 and 2 of 240: more than 1 %, and less
        counts = np.arange(4)[:, None] < chains, np.arange(60) // 20
        said = pk.report(of_step({"nonfinite": counts[0] * counts[1]})).split("\n")[0]
        assert said.startswith("Usable")
        assert ("of where the log density is finite" in said) == told


@pytest.mark.parametrize("pooled", [True, False])
def test_heavy_tails_are_not_usable_for_means(pooled):
    """Student-t with 1.2 and 2 degrees of freedom, and what looks heavier than it is."""
    rng = np.random.default_rng(2)
    draw = {
        "normal": rng.standard_normal, "t7": partial(rng.standard_t, 7), "exponential": rng.standard_exponential,
        "lognormal": lambda size: np.exp(rng.standard_normal(size)), "whole": partial(rng.poisson, 0.1),
        "t2": partial(rng.standard_t, 2), "t1.2": partial(rng.standard_t, 1.2),
    }  # fmt: skip
    heavy = {}
    for name, make in draw.items():
        found = run(n=1000, chains=4)
        attrs = found["posterior"].attrs if pooled else {}
        found["posterior"] = az.convert_to_dataset({name: make(size=(4, 1000))}).assign_attrs(attrs)
        text = pk.report(found)
        heavy[name] = text.startswith(f"Not usable: the tails of {name} are heavy")
        assert heavy[name] == ("Medians and intervals are usable" in text)
        assert heavy[name] == (
            "What has two ends has none, and of what is computed" in text
        )  # which this run does not know
    assert [name for name, is_heavy in heavy.items() if is_heavy] == ["t2", "t1.2"]
    if pooled:  # between two ends no tail is heavy
        found["posterior"].attrs["bounded"] = "other, t1.2"
        assert "heavy" not in pk.report(found).split("\n")[0]


def test_a_heavy_tail_that_happens_to_come_near_0_is_heavy():
    """0 is the end of other parameters, not of this one: the draws of a location of 100 do not say where it may go."""
    draws = 100.0 + np.random.default_rng(0).standard_t(1.7, (4, 1000))
    assert 0.0 < np.where(draws > 0.0, draws, np.inf).min() < 50.0
    assert "are heavy" in with_draws(np.where(draws > 0.0, draws, 1.0))


def test_the_tails_of_many_normals_are_not_heavy_by_chance():
    """Of 100 draws of 30, half of such reports had one above .45; one t of few degrees of freedom still has."""
    rng = np.random.default_rng(9)
    draws = rng.standard_normal((2, 50, 30))
    judged, names = convergence.Judgement(100.0, 1.0), [f"x{i}" for i in range(30)]
    of_chance = [max(convergence.tail_indices(x)) for x in np.moveaxis(draws, 2, 0)]
    assert max(of_chance) > 0.45
    assert not doubts.find(run(n=50, chains=2), {}, names, draws, judged).heavy
    draws[..., 0] = rng.standard_t(1.2, (2, 50))
    assert {t.name for t in doubts.find(run(n=50, chains=2), {}, names, draws, judged).heavy} == {"x0"}
    assert (convergence.heavy_from(rng.standard_normal((4, 1000, 30))) == 0.45).all()


@pytest.mark.parametrize("centre", [0.5, 3.0])
def test_an_angle_that_lies_across_pi_is_judged_by_its_direction(centre):
    """As a number its draws stand in two clusters, and its mean is of neither."""
    turned = np.random.default_rng(6).normal(centre, 0.3, size=(16, 200))
    draws = (turned + np.pi) % (2.0 * np.pi) - np.pi
    text = with_draws(draws)
    assert text.startswith("Usable")
    assert ("judged as angles: x (direction 3.0" in text) == (centre == 3.0)
    assert ("pm.VonMises(name, 0.0, 1e-3) does not" in text) == (centre == 3.0)
    np.testing.assert_allclose(directions.unrolled(draws) - turned, 0.0, atol=1e-12)
    apart = turned + (0.9 * np.arange(16) / 16)[:, None]  # chains that disagree do so across the end, too
    assert with_draws((apart + np.pi) % (2.0 * np.pi) - np.pi).startswith("Not usable: the chains disagree")


NO_ANGLES = {
    "normal": lambda rng: rng.normal(0.0, 1.0, (16, 200)), "wide": lambda rng: rng.normal(0.0, 3.0, (16, 200)),
    "uniform": lambda rng: rng.uniform(-3.0, 3.0, (16, 200)), "whole": lambda rng: rng.integers(-3, 4, (16, 200)) * 1.0,
}  # fmt: skip


@pytest.mark.parametrize("made", NO_ANGLES.values(), ids=NO_ANGLES)
def test_a_number_around_zero_is_no_angle(made):
    draws = made(np.random.default_rng(7))
    assert not directions.lies_across(draws)
    assert "angle" not in with_draws(draws)


def test_a_small_mode_far_away_is_no_heavy_tail():
    rng = np.random.default_rng(3)
    draws = rng.standard_normal((16, 60)) + 100.0 * (rng.random((16, 60)) < 0.02)
    assert "are heavy" in with_draws(draws)
    judged = convergence.judge(draws[..., None])
    of_two = Run(posterior=az.convert_to_dataset({"x": draws}), sample_stats=az.convert_to_dataset({"lp": draws}))
    assert not doubts.find(of_two, {"modes": 2}, ["x"], draws[..., None], judged).heavy


def test_draws_that_end_where_the_surrogate_is_wrong_are_not_usable():
    """A ridge that bends away from the surrogate's: R-hat 1.015, 700 effective draws, and a tail is missing."""
    rng = np.random.default_rng(4)
    whole = rng.standard_normal((16, 300))
    cut = whole[np.abs(whole) < 1.6][: 16 * 60].reshape(16, 60)
    text = with_draws(cut, wall=1.5)
    assert text.startswith("Not usable: the draws of x end as if cut off, where the surrogate is wrong")
    assert "Over 4% of the surrogate's moves from the outermost draws had no chance" in text
    assert with_draws(cut).startswith("Usable")  # a parameter that has an interval
    assert with_draws(cut, wall=1.5, lost=math.inf, nonfinite=101, failed=1).startswith("Usable")  # an edge
    for unknown in (
        {"nonfinite": 100, "failed": 1},
        {"nonfinite": 100},
    ):  # or the simulator has, in pm.sample nobody knows
        assert with_draws(cut, wall=1.5, lost=math.inf, **unknown).startswith("Not usable: the draws of x end")
    assert with_draws(whole[:, :60], wall=1.5).startswith("Usable")


def test_moves_that_fail_everywhere_are_no_wall():
    """Of a noisy log density: a tenth from the outermost draws, and about as many from the others."""
    rng = np.random.default_rng(4)
    draws = rng.uniform(-1.0, 1.0, (16, 200))  # as if cut off
    own, outer = np.full(draws.shape, True), draws >= np.quantile(draws, 0.9)
    for inner in (0.15, 0.07, 0.01):
        fails = rng.random(draws.shape) < np.where(outer, 0.1, inner)
        assert doubts._moves_fail_beyond(draws, own, accepted(fails)) == (inner == 0.01)


@pytest.mark.parametrize("known", ["attributes", "model", "nothing"])
def test_a_prior_that_ends_is_no_wall_of_the_surrogate(known):
    """Half normal, which ends at 0, and uniform on (2, 7), though moves beyond the outermost draws fail."""
    rng = np.random.default_rng(5)
    with pm.Model() as model:
        pm.HalfNormal("s")
        pm.Uniform("u", 2.0, 7.0)
    found = run()
    s, u = np.abs(rng.standard_normal((16, 60))), rng.uniform(2.0, 7.0, (16, 60))
    ends = {"ends": [2.0, 7.0]} if known == "attributes" else {}
    found["posterior"] = az.convert_to_dataset({"s": s, "u": u}).assign_attrs(ends)
    lowest = (s < np.quantile(s, 0.1)) | (u < np.quantile(u, 0.1))
    text = pk.report(put(found, accept=accepted(lowest)), model if known == "model" else None)
    if known == "nothing":
        assert text.startswith("Not usable: the draws of u end as if cut off")
        assert "report(idata, model) knows" in text
        assert "s (lower tail" not in text
    else:
        assert text.startswith(USABLE)
    # the control: a wall at a distance from the end
    u[u < 3.5] += 1.5
    found["posterior"]["u"].values[:] = u
    lowest |= u < np.quantile(u, 0.1)
    text = pk.report(put(found, accept=accepted(lowest)), model)
    assert "Cut off: u (lower tail, Pareto k -" in text
    assert "report(idata, model) knows" not in text


def test_a_wall_close_to_where_a_parameter_ends_is_not_worth_a_word():
    """Near 0 a scale's logarithm is hard to learn: a hundredth of the draws is missing, or a tenth."""
    x = np.random.default_rng(5).exponential(size=(16, 200))
    for missing, worth in ((0.01, False), (0.1, True)):
        assert doubts._is_wall(-x - missing, [0.0]) == worth
    assert not doubts._is_wall(-np.exp(0.3 * np.log(x)), [0.0])  # far from 0, where nothing ends


@pytest.mark.parametrize("seed", range(3))
def test_a_scale_whose_lowest_draws_are_missing_has_no_interval(seed):
    """The tenth next to 0, where all moves are accepted: a surrogate that never goes there. Controls: all of them,
    scales that the data keep away from 0, and what is positive because it is far away.
    """
    x = np.abs(np.random.default_rng(seed).standard_normal((16, 400)))
    gamma = np.random.default_rng(seed).gamma(4.0, size=x.shape)
    for draws, missing in ((0.125 + 0.9 * x, True), (x, False), (gamma, False), (9.0 + x, False)):
        text = with_draws(draws)
        assert text.startswith(USABLE)
        assert ("hold 85 to 95%, but for scales near 0." in text) == missing
        assert ("Lowest values may be missing: x (lower tail, Pareto k -" in text) == missing


def test_of_many_strange_chains_three_are_named_and_nothing_comforts():
    """Sixteen lines hide the verdict, and three of chains that no others differ from mislead; and what climbs and
    probes found is of basins that these chains did not find.
    """
    apart = {"climbs": 16, "climbs_met": 16, "probes": 80, "probes_missed": 0, "groups": [0] * 16}
    found = run(**apart)
    assert "climbs met" in pk.report(found)
    assert "nothing that it misses" in pk.report(found)
    assert "One effective draw of the worst parameter cost" in pk.report(found)
    mu = found["posterior"]["mu"].values
    mu[:5] += 50.0 * np.arange(1, 6)[:, None]
    text = pk.report(found)
    assert text.count("is elsewhere") == 3
    assert "Of the 16 chains 2 more are where the others are not" in text
    assert "One effective draw" not in text  # of what chains that disagree have
    mu[:] += 50.0 * np.arange(16)[:, None]
    text = pk.report(found)
    assert "is elsewhere" not in text
    assert "16 of 16 chains are far from the others, or stuck: they have not come together." in text
    assert "climbs met" not in text
    assert "nothing that it misses" not in text


def test_few_visits_to_the_ends_give_no_intervals():
    """The middle mixes, and every chain has been twice at the upper end, for thirty draws each."""
    x = np.random.default_rng(0).standard_normal((4, 1000))
    assert "Intervals of 90% hold" in with_draws(x)
    visits = np.arange(1000) % 500 < 30
    x = np.where(visits, 1.7 + 0.2 * np.abs(x), np.clip(x, -1.6, 1.6))
    judged = convergence.judge(x[..., None])
    assert judged.ess >= convergence.ENOUGH
    assert judged.rhat < convergence.STRICTLY
    text = with_draws(x)
    assert text.startswith(USABLE)
    assert re.search(r"for those it takes 400 effective draws, at their ends too \((\d\d|1\d\d|2\d\d)\)", text)


def test_nuts_is_named_where_a_gradient_may_be():
    """Not beside black boxes, and not where the draws are usable: a newcomer was told to tune 25,600 draws."""
    assert "NUTS" in pk.report(of_step(LEARNED, shift=30.0))
    assert "NUTS" not in pk.report(of_step(LEARNED))
    assert "NUTS" not in pk.report(of_step(LEARNED | {"factors": 2, "worst_factor": 0}, shift=30.0))
    assert "NUTS" not in pk.report(of_step(LEARNED, shift=30.0), noisy_model())


def test_of_a_black_box_the_step_that_learns_it_is_named():
    """Beside one nobody has a gradient; and it is not told to who has that step."""

    @wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])
    def solve(x):
        return np.exp(x)

    with pm.Model() as model:
        mu = pm.Normal("mu", shape=2)
        pm.Normal("y", solve(mu), 1.0, observed=np.ones(2))
    for statistics, named in (({"rank": 5, "gamma": 0.1}, True), (LEARNED, False)):
        text = pk.report(of_step(statistics, shift=30.0), model)
        assert ("step=pk.KamiltonianStep(), which learns black boxes" in text) == named
        assert "NUTS" not in text


@pytest.mark.parametrize(("tuned", "advised"), [(0, 1000), (99, 1000), (100, 1000), (300, 1200)])
def test_of_hardly_any_tuning_no_multiple_is_advised(tuned, advised):
    """Ten times none is none."""
    made = of_step(LEARNED, shift=30.0)
    made["posterior"].attrs["tuning_steps"] = tuned
    assert f"tune={advised}, " in pk.report(made)
    assert ("tuning to learn from" in pk.report(made)) == (tuned < 100)


def test_of_too_little_it_says_what_is_missing():
    for few, says in (
        ({"chains": 1}, "1 of 60: chains=4."),
        ({"n": 5, "chains": 4}, "4 of 5: more evaluations, or fewer chains."),
    ):
        with pytest.raises(ValueError, match=re.escape(says)):
            pk.report(run(**few))
    alone = run(n=5, chains=4)
    del alone["posterior"].attrs["evaluations"]
    with pytest.raises(ValueError, match=re.escape("4 of 5: more draws.")):
        pk.report(alone)


def test_a_few_climbs_that_met_are_not_told():
    """At 95 % one climb alone excludes basins that are larger than nineteen of twenty starts."""
    assert "climbs met" not in pk.report(run(climbs=4, climbs_met=4))
    assert "climbs met" in pk.report(run(climbs=5, climbs_met=5))


def test_without_a_look_at_other_modes_the_verdict_is_of_one():
    """All chains of black boxes that are learned one by one may be in one mode of two."""
    boxes = LEARNED | {"factors": 1, "worst_factor": [0, 0, 0, 0]}
    assert "of the mode" not in pk.report(of_step(boxes | {"other_mode": [0.0, math.nan, 0.0, 0.0]}))
    assert re.search(r"every mean within \d+%, of the mode that these chains are in\.", pk.report(of_step(boxes)))
    assert "of the mode" not in pk.report(of_step(LEARNED))
    pooled = {"factors": 1, "worst_factor": "solver", "climbs": 5}
    assert "of the mode" in pk.report(run(climbs_met=4, **pooled))  # of half of the starts nothing is known
    assert "of the mode" not in pk.report(run(climbs_met=5, **pooled))
    advice = 'if there are several modes, pk.sample(step=pk.KamiltonianStep(learn="all"), initvals="prior")'
    assert advice in pk.report(of_step(boxes, shift=30.0))
    assert advice not in pk.report(of_step(LEARNED, shift=30.0))


def test_what_another_step_moves_is_named_first():
    """A longer run of the same learns the same old values: followed to the letter it took a hundred times the draws."""
    found = of_step(LEARNED, shift=30.0)
    assert "sum out" not in pk.report(found)
    switch = np.random.default_rng(0).integers(3, size=(4, 60))
    found["posterior"]["switch"] = ("chain", "draw"), switch
    said = "To try next: sum out switch, which another step moves: what is learned here is of its old values; "
    assert said not in pk.report(found)  # a deterministic may be whole numbers, too
    with pm.Model() as model:
        pm.Normal("mu")
        pm.Categorical("switch", p=[0.2, 0.3, 0.5])
    assert said in pk.report(found, model)
    with pm.Model() as model:  # a deterministic that is a number of things
        pm.Normal("mu")
    assert "sum out" not in pk.report(found, model)


def test_that_nothing_was_screened_is_said():
    """FastKameleonStep in more unknowns than a surrogate is fitted in is KamiltonianStep there, draw for draw."""
    assert "No move was screened by a surrogate" in pk.report(of_step({"rank": 5, "gamma": 0.1, "move": "global"}))
    assert "No move was screened" not in pk.report(of_step({"gamma": 0.1, "move": "global"}))


@pytest.mark.parametrize(("unknowns", "what"), [(None, "the tuning"), (40, "400 tuning draws an unknown")])
def test_a_number_that_is_cut_off_is_not_said_to_be_one_an_unknown(unknowns, what):
    """Without the model ten times the tuning is the most that is advised."""
    found = of_step({"rank": 5, "gamma": 0.1}, shift=30.0)
    rng, model = np.random.default_rng(0), None
    found["posterior"]["far"] = ("chain", "draw", "k"), 30.0 * rng.standard_normal((4, 60, 40))
    if unknowns:
        with pm.Model() as model:
            pm.Normal("far", shape=unknowns)
    assert re.search(rf"times the draws and {what}, pm\.sample", pk.report(found, model))


@pytest.mark.parametrize(("chains", "said"), [(2, True), (3, True), (4, False)])
def test_that_few_chains_see_little_is_said(chains, said):
    text = pk.report(run(chains=chains, groups=[0] * chains))
    assert (f"Of {chains} chains it sees little" in text) == said


def test_elements_have_the_names_that_arviz_gives_them():
    posterior = az.convert_to_dataset(
        {"x": np.random.default_rng(5).standard_normal((4, 50, 2, 2))},
        coords={"group": ["a", "b"]}, dims={"x": ["group", "side"]},
    )  # fmt: skip
    assert list(convergence.elements(posterior)) == list(az.summary(posterior).index)


def test_modes_and_how_often_chains_changed_are_said():
    labels = np.zeros((16, 60), int)
    labels[:4, ::2] = 1
    text = pk.report(put(run(modes=2), mode=labels))
    assert "2 modes are known" in text
    assert "changed between them 236 times. In them are 88%, 12% of the draws." in text
    still = pk.report(put(run(modes=2), mode=0))
    assert "0 times" in still
    assert "say nothing" in still


@pytest.mark.parametrize(("chains", "number"), [(16, 5), (4, 1), (2, 1)])
def test_a_chain_that_is_elsewhere_is_named(chains, number):
    """Of four chains none has a mean that is three sds of all draws away; of two the others is the other."""
    text = pk.report(run(chains=chains, shift=30.0, groups=[0] * chains))
    assert text.startswith("Not usable: the chains disagree")
    stands = re.findall(r"Chain (\d+) is elsewhere: (\S+) = (?:29|30)\S* against -?0\.\d+ in the others", text)
    assert stands == [(str(number), "theta[0]")]
    assert "times the evaluations" in text


def part(found, **which):
    """Of a run what is left by ``sel``."""
    return Run({name: group.sel(which) for name, group in found.items()})


def beside(*runs):
    """Their chains together, numbered anew."""
    joined = {name: xarray.concat([r[name] for r in runs], "chain", combine_attrs="override") for name in runs[0]}
    return Run({n: group.assign_coords(chain=np.arange(group.sizes["chain"])) for n, group in joined.items()})


def test_some_chains_of_a_run_and_two_runs_together_are_judged():
    """Who began together is known of one run's chains alone; IndexError before."""
    made = run(n=400, chains=16)
    assert pk.report(part(made, chain=slice(0, 7))).startswith("Usable")
    assert pk.report(part(made, chain=[2, 9, 11])).startswith("Usable")
    twice = beside(made, made)
    assert "There are 400 draws of each of 32 chains." in pk.report(twice)  # whose evaluations nobody has added up
    assert "evaluations of the log density" not in pk.report(twice)


def test_a_chain_has_its_number():
    made = run(chains=8, shift=30.0, groups=[0] * 8)
    assert "Chain 5 is elsewhere" in pk.report(part(made, chain=[4, 5, 6, 7]))


def test_what_has_no_mean_is_nowhere_else():
    """The report had just said that its tails are heavy."""
    made = run(n=400, chains=8)
    rng = np.random.default_rng(4)
    made["posterior"]["ratio"] = ("chain", "draw"), rng.standard_t(1.2, size=(8, 400))
    made["posterior"]["ratio"][3] += 500.0 * (rng.random(400) < 0.2)
    made["posterior"].attrs["derived"] = "ratio"
    assert "Of what is computed from the unknowns, tails are heavy: ratio" in pk.report(made)
    assert "is elsewhere" not in pk.report(made)


@pytest.mark.parametrize("every", [1, 5])
def test_a_thinned_run_is_of_as_many_evaluations(every):
    """The count runs on through draws that are thinned away, and begins anew in the next run."""
    made = run(n=500, chains=4)
    for name in ("evaluations", "evaluations_tuning", "rounds", "seconds", "nonfinite"):
        del made["posterior"].attrs[name]
    put(made, nonfinite=np.tile(np.arange(500) // 50, (4, 1)))
    text = pk.report(part(made, draw=slice(None, None, every)))
    assert "36 of the draws' 2000 evaluations were not finite" in text


def test_which_draws_are_left():
    assert [of_steps.spacing(np.array(d)) for d in ([0], [0, 1, 2], [0, 5, 10], [0, 1, 2, 0, 1, 2], [0.5, 1.0])] == [
        1,
        1,
        5,
        1,
        1,
    ]


def test_divergences_of_nuts_are_no_surrogates():
    made = run(chains=4)
    put(made, diverging=True)
    assert "NUTS had 240 divergences: where the posterior is narrow draws may be missing" in pk.report(made)
    assert "cliff" not in pk.report(made)
    put(made, kamiltonian_diverging=True, kamiltonian_lp=0.0)  # beside it
    assert "240 trajectories ended where the log density falls off a cliff" in pk.report(made)
    assert "NUTS had 240 divergences" in pk.report(made)
    own = put(run(chains=4), diverging=True, refits=1)
    assert "240 trajectories ended where" in pk.report(own)
    assert "NUTS" not in pk.report(own)


@pytest.mark.parametrize("share", [0.004, 0.05])
def test_where_nuts_diverges_often_its_draws_are_not_usable(share):
    made = run(n=250, chains=4)
    put(made, diverging=np.arange(1000).reshape(4, 250) < 1000 * share)
    text = pk.report(made)
    assert text.startswith("Not usable: NUTS diverged in 5% of its draws." if share > 0.01 else USABLE)
    assert f"NUTS had {round(1000 * share)} divergences" in text


def test_few_draws_near_an_end_are_no_wall():
    """Of 200 draws three more lie between the lowest and twice that in one run of eight, whatever the density is."""
    x = np.concatenate([[0.01, 0.012, 0.015, 0.018, 0.019], np.linspace(0.03, 2.0, 195)])
    assert not doubts._is_wall(-x, [0.0])
    more = np.concatenate([np.linspace(0.01, 0.0199, 9), x[5:]])
    assert doubts._is_wall(-more, [0.0])


def test_what_to_try_next_is_in_the_words_of_who_sampled():
    """pm.sample has draws and tuning, pk.sample evaluations: a new user asked which number to raise."""
    pooled = pk.report(run(shift=30.0))
    again = r"next: (\d+) times the evaluations, pk\.sample\(max_evaluations=(\d+), evaluations=idata\), which learns"
    more, evaluations = map(int, re.search(again, pooled).groups())
    assert evaluations == 1500 * more


@pytest.mark.parametrize(
    ("statistics", "step"),
    [
        ({"residual_sd": 0.1, "uncovered": 0.0, "surrogate": 1}, "pk.KamiltonianStep()"),
        ({"rank": 5, "gamma": 0.1}, "pk.FastKameleonStep()"),
        ({"gamma": 0.1}, "pk.KameleonStep()"),
        ({"n_components": 3}, "pk.GaussianMixtureStep()"),
        ({}, "..."),  # one of several random walks
    ],
)
def test_what_to_try_next_names_the_step(statistics, step):
    """With the tuning that the step itself asks for where there was less, as the same user found them to differ."""
    text = pk.report(of_step(statistics, shift=30.0))
    found = re.search(
        r"To try next: (\d+) times the draws and 400 tuning draws an unknown, pm\.sample\((\d+), tune=1200, "
        r"step=(.+)\), its options and the rest as before"
        r"(?:; another parametrisation[^;]*)?; NUTS, pm\.sample\(\) without a step", text,
    )  # fmt: skip
    assert found[3] == step
    assert int(found[2]) == 60 * int(found[1])
    with pm.Model() as model:  # theta is a deterministic
        pm.Normal("mu", shape=2)
    assert f"tune=800, step={step}" in pk.report(of_step(statistics, shift=30.0), model)
    enough = of_step(statistics, shift=30.0)
    enough["posterior"].attrs["tuning_steps"] = 1300
    boxes = of_step({"residual_sd": 0.1, "uncovered": 0.0, "surrogate": 1, "factors": 2, "worst_factor": 0}, shift=30.0)
    for made, tune in ((enough, 1300), (boxes, 500)):  # of black boxes one by one no dimension asks
        text = pk.report(made)
        more, longer = map(int, re.search(r"(\d+) times the draws and the tuning, .*tune=(\d+)", text).groups())
        assert longer == more * tune


def test_what_to_try_next_goes_on_with_a_checkpoint():
    text = pk.report(run(n=20, chains=4, checkpoint="here"))
    assert "the same call with max_evaluations=" in text
    assert "evaluations=idata" not in text


def test_noise_is_known_to_a_run_without_its_model():
    assert "(more work for the estimator of like)" in pk.report(run(noisy="like", surrogate="none"))


def test_without_a_step_of_ours_none_is_named():
    found = of_step({}, shift=30.0)
    found["sample_stats"] = found["sample_stats"].drop_vars("move")
    text = pk.report(found)
    assert re.search(r"times the draws and the tuning, pm\.sample\(\d+, tune=\d+\), the rest as before\.", text)
    assert "surrogate" not in text
    assert "learned alone" not in text
    assert "NUTS" not in text  # they may be its own


@pytest.mark.parametrize("mass", [0.0, 0.7, 512.0])
def test_a_mode_that_a_chain_has_found_and_not_been_in_is_not_usable(mass):
    text = pk.report(of_step({**LEARNED, "other_mode": [0.0, mass, 0.0, 0.0]}))
    assert ('initvals="prior"), which jumps between modes' in text) == (mass > 0.0)
    number = 510 if mass > 1.0 else 0.7
    said = f"Not usable: a climb ended in another mode, with about {number} times the mass of chain 1's"
    assert text.startswith(said) == (mass > 0.0)


def test_screened_moves_are_a_surrogates():
    found = of_step({"rank": 5, "gamma": 0.1})
    moves = found["sample_stats"]["move"]
    found["sample_stats"]["move"] = moves.dims, np.where(moves.values == "global", "local", "screened")
    assert re.search(r"A surrogate made \d+% of the moves, of which 90% were accepted; of", pk.report(found))


def test_acceptance_of_two_steps_is_not_taken_for_one():
    found = of_step({"gamma": 0.1})
    accept = found["sample_stats"]["accept"].values
    found["sample_stats"]["accept"] = ("chain", "draw", "step"), np.stack([accept, accept], axis=2)
    assert "of the moves" not in pk.report(found)


def test_statistics_of_two_steps_of_ours_have_an_axis_more():
    found = of_step(LEARNED | {"share": 1.0})
    expected = pk.report(found).splitlines()[0]
    statistics = found["sample_stats"]
    both = {name: (("chain", "draw", "step"), np.stack(2 * [x.values], axis=2)) for name, x in statistics.items()}
    both["share"][1][2, :, 1] = 0.1
    text = pk.report(Run(found, sample_stats=xarray.Dataset(both)))
    assert text.splitlines()[0] == expected
    assert (
        "Chain 2 spent much of its time where the log density is above the surrogate's, which had at most 10%" in text
    )


@pytest.mark.parametrize(("surrogates", "accused"), [((0, 0), []), ((0, 1), []), ((1, 0), ["2"])])
def test_a_step_that_has_no_surrogate_accuses_no_chain(surrogates, accused):
    """Its shares are 0, in all chains; here those of the first step are low in one of them."""
    statistics = of_step(LEARNED | {"share": 1.0})["sample_stats"]
    both = {name: (("chain", "draw", "step"), np.stack(2 * [x.values], axis=2)) for name, x in statistics.items()}
    both["surrogate"][1][:] = surrogates
    both["share"][1][..., np.equal(surrogates, 0)] = 0.0
    both["share"][1][2, :, 0] = 0.1
    text = pk.report(Run(of_step(LEARNED), sample_stats=xarray.Dataset(both)))
    assert re.findall(r"Chain (\d+) spent", text) == accused


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_has_draws_that_are_no_numbers_is_not_judged(value):
    found = run(chains=4)
    logs = np.random.default_rng(0).standard_normal((4, 60, 2))
    logs[2, 7, 1] = value
    found["posterior"]["logs"] = ("chain", "draw", "side"), logs
    text = pk.report(found)
    assert "but for logs[1]" in text.splitlines()[0]
    assert "Not judged: logs[1], of which draws are NaN or infinite." in text


def test_what_is_no_run_is_refused():
    found = run(chains=4)
    with pytest.raises(ValueError, match=r"pk\.sample or pm\.sample returned, and this has no group sample_stats"):
        pk.report(Run(posterior=found["posterior"]))
    for still in (1.0, math.nan):
        found["posterior"] = xarray.full_like(found["posterior"], still)
        with pytest.raises(ValueError, match="no variable of the posterior has finite draws that differ"):
            pk.report(found)


def test_data_that_are_listed_twice_are_no_error():
    """As PyMC 5.28's ``sample_posterior_predictive`` leaves a model."""
    with pm.Model() as model:
        list.append(model.observed_RVs, pm.Normal("y", pm.Normal("mu"), observed=0.5))
    assert pk.report(run(), model) == pk.report(run())


@pytest.mark.parametrize("kind", [int, bool])
def test_an_integer_that_no_chain_has_changed_is_not_judged(kind):
    found = run(chains=4)
    shape = found["posterior"]["theta"].shape[:2]
    found["posterior"]["z"] = ("chain", "draw"), np.ones(shape, kind)
    text = pk.report(found)
    assert "but for z" in text.splitlines()[0]
    assert "The same in every draw: z. Nothing here tells whether the chains could have changed that" in text
    found["posterior"]["z"] = ("chain", "draw"), np.ones(shape)  # a deterministic, or an unknown that stands still
    assert "but for z" in pk.report(found)
    found["posterior"].attrs["derived"] = "z"
    assert "but for z" not in pk.report(found)


def test_chains_that_stand_still_apart_disagree():
    found = run(chains=4)
    still = np.broadcast_to(np.arange(4.0)[:, None], found["posterior"]["theta"].shape[:2])
    found["posterior"]["z"] = ("chain", "draw"), still
    text = pk.report(found)
    assert text.startswith("Not usable: the chains disagree (R-hat inf")
    assert "R-hat is inf at most, of z" in text


def test_the_log_of_a_run_says_what_the_report_says(caplog):
    with pm.Model(coords={"group": ["a", "b"]}), caplog.at_level(logging.WARNING, "pymc.kameleon"):
        pm.Normal("x", dims="group")
        idata = pk.sample(12, tune=30, chains=4, random_seed=1, progressbar=False)
    assert idata["posterior"].attrs["centred"] == 0  # there is no hierarchy to be moved
    verdict, *rest = pk.report(idata).split("\n")
    assert verdict.startswith("Not usable: ")
    assert [r.message for r in caplog.records if "usable" in r.message] == [f"{verdict} See pk.report(idata)."]
    assert any("x[a]" in line or "x[b]" in line for line in rest)
