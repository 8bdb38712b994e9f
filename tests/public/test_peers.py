"""Against other packages: evaluations are counted exactly, draws weighed rightly, what has not converged is marked."""

import numpy as np
import pytest

from benchmarks.peers import board, cells, measures, samplers, tables
from benchmarks.peers.adapters import Draws, Task
from benchmarks.peers.counting import BudgetSpentError, Counted, TimeSpentError
from benchmarks.peers.targets import Flat, Problem
from pymc_kameleon.targets import CorrelatedGaussian

DIM, QUICK = 2, ("adaptive_metropolis", "demetropolisz", "demetropolis", "metropolis", "nuts")


class _Start(Flat):
    def __init__(self, target):
        self.name, self.target, self.dim = "normal", target, target.dim
        self.model, self.log_density = target.pymc_model(), target.numba_log_density

    def starts(self, seed, n):
        return np.random.default_rng(seed).uniform(-2.0, 2.0, (n, self.dim))


class Normal(Problem):
    """A correlated normal variable, as the targets of the benchmark are."""

    def __init__(self):
        self.name, self.real, self.noisy, self.boxes = "normal", None, False, 1
        self.target = CorrelatedGaussian(4.0, DIM)
        self.sd = np.sqrt(np.diag(self.target.cov))
        self.low, self.high = -10.0 * self.sd, 10.0 * self.sd
        self.posterior = _Start(self.target)


@pytest.fixture(scope="module")
def normal():
    return Normal()


def run(normal, name, budget, seed=0, k=0):
    """Draws, what the counter says, and how often the density was really evaluated."""
    if not samplers.installed(name):
        pytest.skip(f"{samplers.SAMPLERS[name].package} is not installed")
    calls = []

    def log_density(x):
        calls.append(1)
        return normal.target.numba_log_density(x)

    counted = Counted(log_density, budget)
    draws = samplers.function(name)(Task(normal, counted, budget, seed, k))
    return draws, counted.evaluations, len(calls)


def names():
    return [
        pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in samplers.SAMPLERS
    ]


# --- counting ----------------------------------------------------------------------------------------


def test_a_counted_log_density_stops_at_its_limit():
    counted = Counted(lambda x: 0.0, 3)
    assert [counted(np.zeros(1)) for _ in range(3)] == [0.0] * 3
    with pytest.raises(BudgetSpentError):
        counted(np.zeros(1))
    assert counted.evaluations == 3
    assert Counted(lambda x: np.nan, 1)(np.zeros(1)) == -np.inf


@pytest.mark.parametrize("name", names())
@pytest.mark.filterwarnings("ignore")
def test_evaluations_are_counted_and_stop_at_the_budget(normal, name):
    if name in ("pocomc", "nautilus", "dynesty", "smc"):
        pytest.skip("tries sizes until one fits: what did not is not counted; the next test")
    budget = 1500
    draws, counted, calls = run(normal, name, budget)
    assert calls == counted <= budget
    assert counted > 0.8 * budget or name == "pyvbmc"
    assert draws.values.ndim == 3
    assert draws.values.shape[2] == DIM


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pocomc", "nautilus", "dynesty", "smc"])
@pytest.mark.filterwarnings("ignore")
def test_what_fits_is_within_the_budget(normal, name):
    _, counted, calls = run(normal, name, 4000)
    assert 0 < counted <= 4000
    assert counted <= calls


def test_a_call_past_the_counter_would_be_seen(normal):
    """The control: a sampler that evaluates the density behind the counter's back."""
    _, counted, calls = run(normal, "adaptive_metropolis", 300)
    assert calls == counted
    calls = []
    behind = Counted(lambda x: calls.append(1) or 0.0, 300)
    for _ in range(100):
        behind(np.zeros(DIM))
        behind.log_density(np.zeros(DIM))
    assert len(calls) != behind.evaluations


@pytest.mark.parametrize(
    "name", [n for n in samplers.SAMPLERS if n in ("adaptive_metropolis", "demetropolisz")]
    + [pytest.param(n, marks=pytest.mark.slow) for n in samplers.SAMPLERS
       if n not in ("adaptive_metropolis", "demetropolisz")],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_a_normal_target_comes_out_right(normal, name):
    """Means and sds within errors, by the effective draws of the worst coordinate; an approximation's as of 100."""
    made = [run(normal, name, 4000, k=k)[:2] for k in range(2)]
    found = measures.measure([d for d, _ in made], [e for _, e in made], np.zeros(DIM), normal.sd)
    ess = 100.0 if found["ess"] is None else found["ess"] * found["evaluations"] / 1000.0 / 2
    assert ess > 15.0
    # weights say nothing of correlation: twice the error
    wider = 2.0 if made[0][0].weights is not None else 1.0
    assert found["mean_error"] < 4.5 * wider / np.sqrt(ess)
    assert found["sd_error"] < 4.5 * wider / np.sqrt(2.0 * ess)


# --- measures ----------------------------------------------------------------------------------------


def test_kish_is_the_number_of_equal_weights():
    assert measures.kish(np.full(7, 0.2)) == pytest.approx(7.0)
    assert measures.kish([1.0, 0.0, 0.0]) == 1.0
    assert measures.kish([3.0, 1.0]) == pytest.approx(16.0 / 10.0)


def test_weighted_draws_are_repeated_draws():
    """Integer weights: the oracle repeats each draw so often."""
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(50, DIM)), rng.integers(0, 5, 50)
    repeated = np.repeat(x, weights, axis=0)
    weighted, plain = Draws(x[None], weights.astype(float)), Draws(repeated[None])
    for mine, oracle in zip(measures.moments(weighted), measures.moments(plain), strict=True):
        np.testing.assert_allclose(mine, oracle)
    unweighted = measures.moments(Draws(x[None]))
    assert not np.allclose(unweighted[0], repeated.mean(0))  # the control


def test_a_sequence_has_the_weighted_mean():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(4000, 1))
    weights = np.exp(x[:, 0])  # the mean becomes 1
    row = measures.sequence(Draws(x[None], weights), rng)
    assert abs(row.mean() - 1.0) < 4.5 / np.sqrt(measures.kish(weights))
    assert abs(measures.sequence(Draws(x[None]), rng).mean()) < 4.5 / np.sqrt(4000)


def test_copies_of_particles_count_once():
    rng = np.random.default_rng(2)
    few = rng.normal(size=(20, 1))
    copies = [Draws(few[rng.integers(20, size=500)][None], kind="particles") for _ in range(2)]
    assert measures.effective(copies) <= 40
    as_chains = [run._replace(kind="chains") for run in copies]
    assert measures.effective(as_chains) > 400  # the control


def test_rhat_is_of_runs_and_of_walkers():
    rng = np.random.default_rng(3)
    apart = [Draws(shift + rng.normal(size=(8, 100, 1))) for shift in (0.0, 3.0)]
    together = [Draws(rng.normal(size=(8, 100, 1))) for _ in range(2)]
    assert measures.rhat(apart) > 1.5
    assert measures.rhat(together) < 1.02
    assert measures.rhat(together[:1]) is None
    still = [
        Draws(rng.normal(size=(40, 1, 1)) + 0.01 * rng.normal(size=(40, 100, 1))) for _ in range(2)
    ]
    assert measures.rhat(still) > 1.5
    assert (
        measures._rhat([measures.sequence(run, rng) for run in still]) < 1.1
    )  # the control: runs agree


def test_by_error_is_the_number_of_independent_draws():
    rng = np.random.default_rng(4)
    runs = [Draws(rng.normal(size=(1, 200, DIM))) for _ in range(190)]
    found = measures.measure(runs, [1000] * 190, np.zeros(DIM), np.ones(DIM))
    assert found["by_error"] == pytest.approx(200.0, rel=0.25)


# --- tables ------------------------------------------------------------------------------------------


def made_up():
    good = {
        "mean_error": 0.1,
        "sd_error": 0.1,
        "evaluations": 40_000,
        "runs": 4,
        "note": "",
        "code": "",
    }

    def cell(ess, rhat):
        return {**good, "ess": ess, "rhat": rhat, "by_error": ess}

    return {
        "kamiltonian | ring | 10000 | 0": cell(200.0, 1.001),
        "kamiltonian | gauss20 | 10000 | 0": cell(800.0, 1.001),
        "demetropolisz | ring | 10000 | 0": cell(2.0, 1.4),
        "demetropolisz | gauss20 | 10000 | 0": cell(8.0, 1.01),
        "slice | ring | 10000 | 0": {"failed": "too slow", "code": ""},
        "dynesty | ring | 10000 | 0": {**cell(500.0, None), "runs": 1},
    }


def test_the_table_marks_the_span_the_unconverged_and_the_failed():
    found = board.Board(made_up(), 10_000)
    text = "\n".join(tables.section(found))
    assert "gauss20 §" in text
    assert "ring §" not in text
    row = next(line for line in text.split("\n") if line.startswith("| pm.DEMetropolisZ | 2.0"))
    assert "2.0\\*" in row
    assert "8.0\\*" not in row
    assert "500\\*" in text  # of one run nobody knows
    assert "| pm.Slice | ring | too slow |" in text
    assert "| emcee, stretch | all | not run |" in text


def test_ratios_are_told_with_and_without():
    found = board.Board(made_up(), 10_000)

    def ratios(**which):
        return found.ratios("kamiltonian", "demetropolisz", found.ess, **which)

    assert ratios(converged=False, span=True) == pytest.approx([100.0, 100.0])
    assert ratios(converged=True, span=True) == pytest.approx([100.0])
    assert ratios(converged=True, span=False) == []
    assert ratios(converged=False, span=False) == pytest.approx([100.0])
    assert (
        "Some rival converged on 1 targets: there KamiltonianStep has 100 times"
        in tables.summary(found)
    )


def test_converged_and_wrong_is_said():
    some = made_up()
    some["demetropolisz | gauss20 | 10000 | 0"]["sd_error"] = 0.7
    some["demetropolisz | ring | 10000 | 0"]["sd_error"] = 0.7  # has not converged: R-hat said so
    found = board.Board(some, 10_000)
    assert tables.silently_wrong(found) == {"demetropolisz": ["gauss20"]}
    assert "off by more than 0.3 with pm.DEMetropolisZ (gauss20)" in tables.summary(found)
    assert tables.silently_wrong(board.Board(made_up(), 10_000)) == {}


def test_a_sampler_that_fails_is_stored_with_why(monkeypatch):
    def broken(cell, k, deadline):
        raise ValueError("nonsense")

    monkeypatch.setattr(cells, "one_run", broken)
    found = cells.run(cells.Cell("slice", "ring", 100, 0))
    assert found["failed"] == "ValueError: nonsense"


def test_an_evaluation_that_does_not_end_is_ended(monkeypatch):
    def endless(cell, k, deadline):
        while True:
            pass

    monkeypatch.setattr(cells, "one_run", endless)
    found = cells.run(cells.Cell("slice", "ring", 100, 0), seconds=0.1)
    assert found["failed"] == "0 of 4 runs, for want of time"
    assert found["seconds"] < 5.0


def test_a_run_that_was_ended_does_not_count_though_its_draws_were_taken(monkeypatch):
    def taken(cell, k, deadline):
        try:
            while True:
                pass
        except TimeSpentError:
            return Draws(np.zeros((1, 10, 1))), 10

    monkeypatch.setattr(cells, "one_run", taken)
    assert "failed" in cells.run(cells.Cell("slice", "ring", 100, 0), seconds=0.1)
