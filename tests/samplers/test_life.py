"""The contract of a chain's life for every sampler, without PyMC: stages, noise, resuming, freezing."""

import math
import pickle
from functools import cache
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from pymc_kameleon.samplers import chain, noise_probe
from pymc_kameleon.samplers.arrival import search
from pymc_kameleon.samplers.gaussian_mixture.sampler import GaussianMixture
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kamiltonian.values.sampler import ValueKamiltonian
from pymc_kameleon.samplers.life import NOWHERE, Life
from pymc_kameleon.samplers.seam import Density, Point
from tests.samplers.test_seam import TARGET, bytes_of, every_sampler, leaves

START = np.array([9.0, -6.0])


def noise_free(proposal, here):
    """What a step's ``_evaluate`` does."""
    if proposal.log_density is not None:
        return Point(proposal.position, proposal.log_density, here.noise)
    if proposal.position is here.position:
        return here
    return Point(proposal.position, TARGET.log_density(proposal.position), here.noise)


def noisy(seed=3, sd=1.0):
    """An estimate, never the same twice, and how often it was asked for at which point."""
    rng, asked = np.random.default_rng(seed), []

    def evaluate(proposal, here):
        found = noise_free(proposal, here)
        if found is here or proposal.log_density is not None:
            return found
        asked.append(proposal.position)
        return found._replace(log_density=found.log_density + sd * rng.standard_normal())

    return evaluate, asked


def of(sampler, rng, noisy=False):
    density = Density(2)
    density.noisy = noisy
    return Life(sampler, density, rng)


def born(sampler, *, noisy=False, arrives=True):
    life = of(sampler, np.random.default_rng(0), noisy)
    begin(life, arrives)
    return life


def begin(life, arrives=True):
    value = TARGET.log_density(START)
    looks = np.array([[30.0, 30.0], [-30.0, 0.0]])
    arrival = search.init(START, value, budget=40, looks=looks) if arrives else None
    life.put(Point(START.copy(), value, NOWHERE.noise), lambda: arrival)


def lived(life, evaluate, draws):
    return [life.draw(evaluate).proposal.move for _ in range(draws)]


def copied(life):
    """As it would be resumed."""
    twin = of(life.sampler, pickle.loads(bytes_of(life.rng)), life.density.noisy)
    twin.state = pickle.loads(bytes_of(life.state))
    return twin


def tuning(sampler, draws, noisy=False):
    """A life in the middle of tuning, where its log density is noisy without an arrival; a copy for every test."""
    return copied(_tuning(sampler, draws, noisy))


@cache
def _tuning(sampler, draws, is_noisy):
    life = born(sampler, noisy=is_noisy, arrives=not is_noisy)
    lived(life, noisy()[0] if is_noisy else noise_free, draws)
    return life


@every_sampler
@pytest.mark.parametrize("after", [15, 120])
def test_it_resumes_bit_for_bit(sampler, after):
    life = born(sampler)
    lived(life, noise_free, after)
    twin = copied(life)
    for one in (life, twin):
        lived(one, noise_free, 60)
        one.freeze()
        lived(one, noise_free, 20)
    assert bytes_of(life.here[:2]) == bytes_of(twin.here[:2])


@every_sampler
def test_stages_come_in_order_and_end_with_tuning(sampler):
    life = born(sampler)
    moves = lived(life, noise_free, 90)
    walk = next(k for k, move in enumerate(moves) if move != "arrival")
    looks = [k for k, move in enumerate(moves) if move == "arrival" and k > walk]
    assert walk > 2
    assert all((k + 1) % search.look_every(len(START)) == 0 for k in looks)
    assert "refresh" not in moves  # there is no noise
    life.freeze()
    assert life.state.stage is None
    assert "arrival" not in lived(life, noise_free, 40)


@every_sampler
def test_nothing_adapts_after_tuning(sampler):
    life = tuning(sampler, 120)
    own = copied(life).state.own
    life.freeze()
    first, here = life.state, life.here
    for mine, wanted in zip(leaves(first.own), leaves(chain.freeze(sampler, here, own)), strict=True):
        np.testing.assert_equal(mine, wanted)
    lived(life, noise_free, 60)
    assert bytes_of(sampler.place(life.state.own, here)) == bytes_of(sampler.place(first.own, here))
    changed = life.state._replace(here=first.here, own=first.own)
    assert bytes_of(changed) == bytes_of(first)


@every_sampler
def test_a_retained_estimate_is_made_anew_while_tuning_alone(sampler):
    evaluate, asked = noisy()
    life = born(sampler, noisy=True, arrives=False)
    refreshed = 0
    for _ in range(80):
        before = life.here
        if life.draw(evaluate).proposal.move == "refresh":
            assert life.here is before  # measured, never taken over
            refreshed += 1
    assert refreshed == 2 * (80 // noise_probe.EVERY)
    assert len(asked) <= 80
    life.freeze()
    asked.clear()
    for _ in range(60):
        before = life.here
        told = life.draw(evaluate)
        assert told.accepted or life.here is before
    assert not any((x == y).all() for x, y in pairwise(asked))


def test_the_control_of_that(monkeypatch):
    """Probes that go on after tuning evaluate the chain's own point."""
    evaluate, asked = noisy()
    life = tuning(ValueKamiltonian(), 60, noisy=True)
    life.freeze()
    monkeypatch.setattr(life, "_ask_move", life._ask_probe)
    monkeypatch.setattr(life, "_tell_move", life._tell_probe)
    lived(life, evaluate, 3)
    assert (asked[0] == asked[1]).all()


@every_sampler
def test_a_new_chain_inherits_nothing(sampler):
    life = tuning(sampler, 80, noisy=True)
    life.reset()
    assert (life.state.own, life.here, life.state.tuning_draws) == (None, NOWHERE, 0)
    assert life.state.probe == noise_probe.NoiseProbe()
    life.rng = np.random.default_rng(0)
    begin(life)
    alone = born(sampler, noisy=True)
    for one in (life, alone):
        lived(one, noise_free, 60)
        one.freeze()
        lived(one, noise_free, 10)
    assert bytes_of((life.here, life.rng)) == bytes_of((alone.here, alone.rng))


@every_sampler
def test_a_draw_is_one_evaluation_at_most(sampler):
    evaluate, asked = noisy(sd=0.0)
    life = born(sampler)
    for draws in range(1, 130):
        before = life.here.position
        told = life.draw(evaluate)
        assert len(asked) <= draws
        assert np.isfinite(life.here.log_density)
        if not told.accepted:
            np.testing.assert_array_equal(life.here.position, before)
    assert len(asked) > 100
    asked.clear()
    life.freeze()
    assert not asked


def test_what_a_climb_found_in_another_mode_is_shown_to_the_sampler():
    shown = []
    life = tuning(ValueKamiltonian(), 60)
    life.sampler = SimpleNamespace(observe=lambda state, point, move: shown.append((point, move)) or state)
    climb = SimpleNamespace(
        positions=np.arange(12.0).reshape(6, 2), own=1,
        log_densities=np.array([0.0, -100.0, -13.0, -1.0, 0.0, -math.inf]),
    )  # fmt: skip
    life._show(climb)
    assert [p.log_density for p, _ in shown] == [-1.0, 0.0]  # near the top, of its own
    assert {move for _, move in shown} == {"arrival"}


@pytest.mark.parametrize("kind", [Kameleon, FastKameleon, GaussianMixture], ids=lambda kind: kind.__name__)
def test_local_moves_begin_within_pymcs_default_tuning(kind):
    """A step does not know that pm.sample tunes for 1000 draws: the later half is theirs in 20 unknowns."""
    assert kind().init(np.random.default_rng(0), np.zeros(20)).next_refresh <= 500
    assert kind(tune=1000).init(np.random.default_rng(0), np.zeros(20)).next_refresh <= 500
