"""``pk.report``: the verdict, and that it names what was planted."""

import re

import arviz as az
import numpy as np
import pytest

import pymc_kameleon as pk


class Run(dict):
    """What report reads of an InferenceData."""


def run(n=60, chains=16, shift=0.0, share=1.0, **attributes):
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((chains, n, 3))
    draws[5, :, 1] += shift
    shares = np.ones((chains, n))
    shares[5] = share
    posterior = az.convert_to_dataset({"mu": draws[:, :, 0], "theta": draws[:, :, 1:]})
    posterior.attrs |= {
        "evaluations": 1500, "evaluations_tuning": 500, "rounds": 100, "seconds": 50.0, "nonfinite": 0,
        "surrogate": "polynomial", "residual_sd": 0.1, "uncovered": 0.0,
        "groups": [k // 4 for k in range(chains)],
    } | attributes  # fmt: skip
    moves = np.where(rng.random((chains, n)) < 0.9, "surrogate4", "global")
    stats = az.convert_to_dataset(
        {
            "share": shares,
            "accept": np.where(moves == "global", 0.2, 0.9),
            "diverging": np.zeros((chains, n), bool),
        }
    )
    stats["move"] = (("chain", "draw"), moves)
    return Run(posterior=posterior, sample_stats=stats)


def test_a_good_run_is_usable():
    text = pk.report(run())
    assert text.startswith("Usable: ")
    assert (
        "1500 evaluations of the log density, 500 of them for tuning, in 100 rounds of 0.5 s"
        in text
    )
    assert "of which 90% were accepted; of the random walk's 20%" in text
    assert "Chain" not in text.replace("Chains", "")
    assert "To try next" not in text


def test_a_surrogate_that_was_never_judged_is_not_called_far_too_low():
    text = pk.report(run(uncovered=1.0))
    assert "tuning ended too soon after its last fit" in text
    assert "far too low" not in text
    assert "2% of the chains' last tuning states" in pk.report(run(uncovered=0.02))


def in_pools(shift, n=60):
    """Two pools of eight, of which the second has another ``theta[0]``."""
    found = run(n=n, pools=[k // 8 for k in range(16)])
    found["posterior"]["theta"].values[8:, :, 0] += shift
    return pk.report(found)


def test_pools_that_agree():
    text = in_pools(0.0)
    assert text.startswith("Usable: ")
    assert re.search(
        r"The pools, which learned apart, agree: the \w+ of \S+ differs most, .* in pool 0, .* in pool 1, by",
        text,
    )
    assert "share what they learned" not in text


def test_pools_that_disagree_by_less_than_r_hat_tells():
    """A fourth of a posterior sd: R-hat is below 1.02, the pools are nine standard errors apart."""
    text = in_pools(0.4)
    assert text.startswith("Not usable: the pools disagree.")
    assert re.search(
        r"disagree: the mean of theta\[0\] is \S+ in pool 0, 0\.\d+ in pool 1, \d+ standard errors apart",
        text,
    )
    without = run()
    without["posterior"]["theta"].values[8:, :, 0] += 0.25
    assert not pk.report(without).startswith("Not usable")


def in_modes(**attributes):
    found = run(modes=2, **attributes)
    labels = np.zeros((16, 60), int)
    labels[:4, ::2] = 1
    found["sample_stats"]["mode"] = (("chain", "draw"), labels)
    return found


def test_modes_and_how_often_chains_changed_are_said():
    text = pk.report(in_modes())
    assert "2 modes are known" in text
    assert "changed between them 236 times. In them are 88%, 12% of the draws." in text
    assert "of the draws" not in pk.report(in_modes(pools=[k // 8 for k in range(16)]))
    still = in_modes()
    still["sample_stats"]["mode"][:] = 0
    assert "0 times" in pk.report(still)
    assert "say nothing" in pk.report(still)
    assert "modes" not in pk.report(run(modes=1))


def test_what_probes_have_found_is_said_first():
    found = {"probes": 40, "probes_missed": 2, "missed_where": "mu = 3.5"}
    text = pk.report(run(**found))
    assert text.startswith("Usable with care: part of the posterior may be missing.")
    assert "2 of 40 points drawn from the flattened surrogate" in text
    assert "near mu = 3.5" in text
    assert "start='prior' to compare" in text
    text = pk.report(run(probes=40, probes_missed=0))
    assert text.startswith("Usable: ")
    assert "40 points drawn from the flattened surrogate" in text


def test_a_chain_that_is_elsewhere_is_named():
    text = pk.report(run(shift=30.0))
    assert text.startswith("Not usable: the chains disagree")
    assert "Chain 5 is elsewhere: theta[0] = " in text
    assert "times the evaluations" in text


def test_a_chain_that_the_surrogate_does_not_cover_is_named():
    assert (
        "Chain 5 spent much of its time where the surrogate is too low (mean share 0.20)"
        in pk.report(run(share=0.2))
    )


def test_few_draws_are_not_usable_yet():
    text = pk.report(run(n=12, chains=6))
    assert "Not usable" in text.split("\n")[0]
    with pytest.raises(ValueError, match="got 6 of 9"):
        pk.report(run(n=9, chains=6))


def test_what_failed_is_said():
    text = pk.report(run(nonfinite=150, surrogate="none"))
    assert "150 evaluations (10%) were not finite" in text
    assert "random-walk moves did all of the work" in text


def test_what_to_try_next_is_in_the_words_of_who_sampled():
    """pm.sample has draws and tuning, pk.sample evaluations: a new user asked which number to raise."""
    pooled = pk.report(run(shift=30.0))
    assert re.search(
        r"To try next: \d+ times the evaluations \(evaluations=idata keeps these\)", pooled
    )
    alone = run(shift=30.0, tuning_steps=500)
    for name in ("evaluations", "evaluations_tuning", "rounds", "seconds", "groups", "surrogate"):
        del alone["posterior"].attrs[name]
    text = pk.report(alone)
    found = re.search(
        r"To try next: (\d+) times the draws and the tuning, pm\.sample\((\d+), tune=(\d+)\)\.",
        text,
    )
    more, draws, tune = map(int, found.groups())
    assert more >= 2
    assert (draws, tune) == (60 * more, 500 * more)
