"""Other people's samplers: evaluations are counted exactly, and their draws are of the target."""

import numpy as np
import pytest

from benchmarks import cold_start, few_evaluations
from benchmarks.basics import Counted, StoppedError, bulk_ess
from benchmarks.cells import Cell
from benchmarks.hierarchical.board import RIVALS
from benchmarks.rivals import Task, pymc_steps
from benchmarks.targets import TARGETS, Boxed, starts
from pymc_kameleon.targets import CorrelatedGaussian

DIM = 2
QUICK = ("DEMetropolisZ", "NUTS")


class Normal(Boxed):
    """A correlated normal variable, as the targets of the benchmarks are."""

    def __init__(self):
        self.name, self.dim, target = "normal", DIM, CorrelatedGaussian(4.0, DIM)
        self.log_density, self.sd = target.numba_log_density, np.sqrt(np.diag(target.cov))
        self.low, self.high = -10.0 * self.sd, 10.0 * self.sd

    def start(self, seed, run):
        return np.random.default_rng([seed, run]).uniform(-2.0, 2.0, self.dim)


def run(name, budget, k=0):
    """Draws, what the counter says, and how often the density was really evaluated."""
    normal, calls = Normal(), []

    def log_density(x):
        calls.append(1)
        return normal.log_density(x)

    counted = Counted(log_density, budget)
    return RIVALS[name](Task(normal, counted, budget, 0, k)), counted.evaluations, len(calls)


def test_a_counted_log_density_stops_at_its_limit():
    counted = Counted(lambda x: float(x[0]), 3, level=1.0)
    assert [counted(np.array([v])) for v in (0.0, 2.0, np.nan)] == [0.0, 2.0, -np.inf]
    with pytest.raises(StoppedError):
        counted(np.zeros(1))
    assert (counted.evaluations, counted.arrived, counted.best) == (3, 2, 2.0)
    with pytest.raises(StoppedError):
        Counted(lambda x: 0.0, seconds=-1.0)(np.zeros(1))


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in RIVALS])
@pytest.mark.filterwarnings("ignore")
def test_evaluations_are_counted_and_a_normal_target_comes_out_right(name):
    """Means and sds within errors, by the effective draws of the worst coordinate."""
    budget, made = 4000, [run(name, 4000, k) for k in range(2)]
    for draws, counted, calls in made:
        assert 0 < counted <= budget
        assert calls == counted or name == "smc"  # tries sizes until one fits
        assert draws.values.shape[2] == DIM
    n = min(draws.values.shape[1] for draws, *_ in made)
    ess = bulk_ess(np.concatenate([draws.values[:, -n:] for draws, *_ in made])).min() / 2
    assert ess > 15.0
    mean, sd = np.array([draws.moments() for draws, *_ in made]).swapaxes(0, 1)
    off = (np.sqrt(np.mean(np.square(mean / Normal().sd))), np.sqrt(np.mean(np.log(sd / Normal().sd) ** 2)))
    assert off[0] < 4.5 / np.sqrt(ess)
    assert off[1] < 4.5 / np.sqrt(2.0 * ess)


def test_particles_do_not_begin_at_an_initial_value():
    """And the model has its initial values again."""
    normal = Normal()
    model = normal.prior_model
    before = dict(model.rvs_to_initial_values)
    found = pymc_steps.smc(Task(normal, Counted(normal.log_density, 1000), 1000, 0, 0))
    assert found.distinct() > 20
    assert model.rvs_to_initial_values == before


def test_what_fails_is_stored_with_why(monkeypatch):
    def broken(cell, log_density):
        raise ValueError("nonsense")

    monkeypatch.setattr(few_evaluations, "run", broken)
    found = few_evaluations.measure(Cell("emcee", "ring", 500, 0))
    assert found["failed"] == "ValueError: nonsense"
    with pytest.raises(ValueError, match="nonsense"):
        few_evaluations.measure(Cell("alone", "ring", 500, 0))


def test_a_board_compares_with_the_best_and_marks_what_has_not_converged():
    good = {"by_error": [[50.0], [50.0]], "evaluations": 40_000, "seconds": 1.0}
    cells = {
        Cell("kamiltonian", "ring", 10_000, 0): good | {"ess": 200.0, "rhat": 1.001},
        Cell("kamiltonian", "gauss20", 10_000, 0): good | {"ess": 800.0, "rhat": 1.001},
        Cell("demetropolisz", "ring", 10_000, 0): good | {"ess": 2.0, "rhat": 1.4},
        Cell("demetropolisz", "gauss20", 10_000, 0): good | {"ess": 8.0, "rhat": 1.01},
    }
    board = cold_start.Board(cells, 10_000)
    assert board.ratios("kamiltonian", board.ess) == pytest.approx({"ring": 100.0, "gauss20": 100.0})
    assert board.ratios("kamiltonian", board.ess, converged=True) == pytest.approx({"gauss20": 100.0})
    assert cold_start.both(board.ratios("kamiltonian", board.ess, True), True) == ["100 (1 targets)", "–"]
    text = cold_start.score_table(board, board.ess, marks=True)
    assert "| gauss20 § | 800 | 8.0 |" in text
    assert "| ring | 200 | 2.0\\* |" in text


def test_all_samplers_of_a_target_begin_at_the_same_points():
    assert (starts("ring", 3, 4) == starts("ring", 3, 9)[:4]).all()
    assert (Boxed("ring").start(3, 2) == starts("ring", 3, 4)[2]).all()
    assert TARGETS["ring"].dim == Boxed("ring").dim
