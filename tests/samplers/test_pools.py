"""Pools share nothing: each does, bit for bit, what chains alone would do, and the budget of all holds."""

import numpy as np
import pytest

from pymc_kameleon.samplers.pooled import chains as pooled_chains
from pymc_kameleon.samplers.pooled.chains import Chains, Plan
from pymc_kameleon.samplers.pooled.pools import SPAWN_KEY, Pools, divided, share_of
from pymc_kameleon.verdict import convergence, doubts
from tests.support.pooled import TwoModes, finished

STARTS = np.random.default_rng(0).uniform(-2, 2, (9, 2))
SHORT = Plan(draws=12, tune=240, longest=300, max_evaluations=None)


def normal(x):
    return -0.5 * float(x @ x)


def banana(x):
    return -0.5 * float(x[0] ** 2 / 4.0 + (x[1] - 0.5 * x[0] ** 2) ** 2)


def kinked(x):
    """No surrogate is exact for it."""
    return banana(x) - 2.0 * abs(np.sin(3.0 * x[0]))


def run(chains, *log_densities):
    """To the end; with two log densities, each pool's its own."""
    while not chains.done:
        requests = chains.ask()
        which = [k % len(log_densities) for k, asked in enumerate(chains._asked) for _ in asked or []]
        chains.tell([log_densities[k](r.position) for k, r in zip(which, requests, strict=True)])
    return chains


def pooled(*log_densities, n=8, plan=SHORT):
    return run(Pools(2, STARTS[0], STARTS[1 : n + 1], 5, plan), *log_densities)


@pytest.fixture(scope="module")
def pools():
    return pooled(banana)


def test_a_pool_does_what_its_chains_would_do_alone(pools):
    for k, part in enumerate(pools.parts):
        seed = np.random.SeedSequence(5, spawn_key=(SPAWN_KEY, k))
        plan = share_of(pools.plan, 4, 8)
        alone = finished(Chains(STARTS[0], STARTS[1:9][part], seed, plan), banana)
        assert len(alone.rows) == len(pools.rows) == 12
        one, all_ = pooled_chains.posterior(alone), pooled_chains.posterior(pools)
        assert one.tobytes() == np.ascontiguousarray(all_[part]).tobytes()
        assert alone.evaluated.positions.tobytes() == pools.pools[k].evaluated.positions.tobytes()


def test_the_pools_are_not_copies(pools):
    draws = pooled_chains.posterior(pools)
    assert not np.isin(draws[:4], draws[4:]).any()


def test_every_row_is_of_all_chains(pools):
    assert pools.pool == [0] * 4 + [1] * 4
    for row in pools.rows:
        assert row.positions.shape == (8, 2)
        assert [s["pool"] for s in row.statistics] == pools.pool
    assert [row.evaluations for row in pools.rows] == sorted(row.evaluations for row in pools.rows)
    assert set(pools.groups[:4]).isdisjoint(pools.groups[4:])
    assert any(pools.hub is p.hub for p in pools.pools)


def test_every_evaluation_is_of_the_chain_that_asked(pools):
    members = pools.evaluated.chain
    assert {-1, *range(8)} >= set(members.tolist()) > set(range(8))
    for k, part in enumerate(pools.parts):
        own = pools.pools[k].evaluated
        ours = np.isin(members, range(part.start, part.stop))
        theirs = own.chain >= 0
        np.testing.assert_array_equal(pools.evaluated.positions[ours], own.positions[theirs])
        np.testing.assert_array_equal(members[ours], own.chain[theirs] + part.start)


def test_what_one_pool_finds_changes_nothing_in_the_other(pools):
    """The control: one round in which a pool is told another value changes its own draws."""
    first, second = (pooled_chains.posterior(p) for p in (pools, pooled(banana, normal)))
    assert first[:4].tobytes() == second[:4].tobytes()
    assert not np.isin(first[4:], second[4:]).any()


@pytest.mark.parametrize(("n", "most"), [(8, 400), (9, 333), (5, 157)])
def test_the_budget_of_all_holds_and_is_used(n, most):
    asked = []

    def counted(x):
        asked.append(x)
        return banana(x)

    chains = pooled(counted, n=n, plan=Plan(None, None, most // 2, most))
    assert len(asked) == chains.evaluated.size == sum(p.evaluated.size for p in chains.pools) <= most
    assert most - len(asked) < n + 2  # not another draw of every chain
    assert len(chains.rows) >= 5


def test_a_pool_that_is_ahead_waits():
    """One log density is learned at once, the other is not: there are as many draws of both."""
    chains = pooled(normal, kinked, plan=Plan(None, None, 600, 1200))
    tuned = [int((p.evaluated.move != "probe").sum()) - 4 * len(p.rows) for p in chains.pools]
    assert len(chains.pools[0].rows) == len(chains.pools[1].rows) == len(chains.rows) > 10
    assert tuned[0] <= tuned[1]
    assert any(s == {"pool": 0} for row in chains.warmup for s in row.statistics[:4])


def test_parts_are_as_even_as_can_be():
    assert [s.stop - s.start for s in divided(16, 2)] == [8, 8]
    assert [s.stop - s.start for s in divided(7, 3)] == [2, 2, 3]
    plan = Plan(draws=3, tune=70, longest=100, max_evaluations=333)
    shares = [share_of(plan, n, 7) for n in (2, 2, 3)]
    assert sum(s.max_evaluations for s in shares) <= 333
    assert [s.tune for s in shares] == [20, 20, 30]


def test_a_pool_without_a_start_is_told():
    chains = Pools(2, STARTS[0], STARTS[1:5], 5, Plan(3, 40, 40, None))
    for _ in range(2):
        chains.tell([-np.inf] * len(chains.ask()))
    assert chains.nowhere
    assert chains.phase == "start"
    assert chains.nonfinite == chains.evaluated.size == 6
    assert chains.failed == 0
    assert chains.failed_at is None


# --- a planted failure ----------------------------------------------------------------------------


TWO = TwoModes(30.0, 0.0)  # thirty sds apart


def judged(chains, labels):
    """R-hat, and how pools compare, of the draws."""
    draws = pooled_chains.posterior(chains)
    found = doubts.compare_pools(["x", "y"], draws, {"pools": labels})
    return convergence.judge(draws).rhat, found, (draws[..., 0] > 15.0).mean()


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_mode_that_one_pool_does_not_know_is_found_out(seed):
    """Its start is near the second mode in one pool alone. All chains together, begun at the first, miss it, agree."""
    rng, plan = np.random.default_rng(seed), Plan(40, None, 400, None)
    starts = rng.uniform(-1, 1, (8, 2))
    chains = finished(Chains(starts[0], starts, np.random.SeedSequence(seed), plan), TWO.numba_log_density)
    rhat, _, share = judged(chains, [0] * 4 + [1] * 4)
    assert rhat < 1.1
    assert share == 0.0  # wrong, and nothing tells
    starts[4:, 0] += 30.0 * (np.arange(4) % 2)
    pools = finished(Pools(2, starts[0], starts, seed, plan), TWO.numba_log_density)
    rhat, found, share = judged(pools, pools.pool)
    assert share > 0.0
    assert found.errors > doubts.APART or rhat > convergence.CONVERGED


def test_a_pool_waits_for_the_rows_of_the_others():
    """Looks take places of one pool's draws, and not of the other's."""
    starts = np.array([15.0, 0.0]) + 10.0 * np.random.default_rng(2).uniform(-2, 2, (17, 2))
    for plan, rows in ((Plan(20, None, 500, None), 20), (Plan(None, None, 500, 800), None)):
        found = finished(Pools(2, starts[0], starts[1:], 2, plan), TWO.numba_log_density)
        looks = [int((pool.evaluated.move == "look").sum()) for pool in found.pools]
        made = [len(pool.rows) for pool in found.pools]
        assert len(found.rows) == min(made) == (rows or min(made))
        assert max(made) - min(made) <= (0 if rows else 1)  # the budget may end between two pools
        assert max(looks) > 0
        assert rows or found.evaluated.size <= 800
