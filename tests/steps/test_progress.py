"""PyMC's progress bar for these steps, on whichever PyMC is installed, read off a terminal of 80 characters."""

import io
import math
import re

import numpy as np
import pymc as pm
import pytest
from pymc.progress_bar import MCMCProgressBarManager, rich_progress
from rich.console import Console

import pymc_kameleon as pk
from pymc_kameleon.steps.told import progress
from pymc_kameleon.steps.told.pooled_progress import Progress
from tests import step_tester as tester

FAST = {"mode": "FAST_COMPILE"}


@pytest.fixture(params=[80, 120])
def width(request, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(request.param))
    return request.param


def shown(manager, width):
    """What is on the terminal, line by line."""
    screen = Console(file=io.StringIO(), width=width, color_system=None)
    screen.print(manager._backend._progress.get_renderable())
    return [line.rstrip() for line in screen.file.getvalue().splitlines()]


def followed(step, model, draws, width, chains=1):
    """The bar of a step that tunes for ``draws`` draws and then draws as often: its lines after each half."""
    manager = MCMCProgressBarManager(step, chains=chains, draws=draws, tune=draws, progressbar=True)
    manager._backend._initialize_tasks()
    point, screens = model.initial_point(), []
    step.set_rng(np.random.default_rng(1))
    for draw in range(2 * draws):
        if draw == draws:
            screens.append(shown(manager, width))
            step.stop_tuning()
        point, statistics = step.step(point)
        for chain in range(chains):
            manager.update(chain, False, draw, draw < draws, statistics)
    return [*screens, shown(manager, width)]


def test_kamiltonian_shows_phase_acceptance_evaluations_and_surrogate(width):
    model = tester.gaussian()
    step = pk.KamiltonianStep(model=model, compile_kwargs=FAST)
    tuning, drawing = followed(step, model, 300, width)
    for lines, phase in ((tuning, "tun[ei]"), (drawing, "draw")):
        text = "\n".join(lines)
        assert max(map(len, lines)) <= width
        assert re.search(rf"(1\.0|\.\d\d) {phase}", text), text
        assert re.search(r"<\.01 nat|\d nat", text), text
        assert re.search(r"Accept", text), text
        assert re.search(r"Eval", text), text
        assert re.search(r"Fit off", text), text
        rows = "\n".join(lines[lines.index(next(line for line in lines if "───" in line)) :])
        assert "…" not in rows, text  # nothing is cut off, PyMC's clock included
        assert len(re.findall(r"\d:\d\d:\d\d", rows)) == 2, text
    assert re.search(rf"\b{step.evaluations}\b", "\n".join(drawing))


def test_other_steps_show_their_scale(width):
    model = tester.gaussian()
    step = pk.KameleonStep(model=model, compile_kwargs=FAST)
    _, drawing = followed(step, model, 200, width)
    text = "\n".join(drawing)
    assert re.search(r"(1\.0|\.\d\d) draw", text), text
    assert f"{step.algorithm.__name__}" == "Kameleon"
    scale = step.sampler.stats(step.algorithm_state)["scaling"]
    assert f"{scale:.2g}" in text
    assert "Scal" in text


def test_the_first_draws_say_that_the_chain_climbs(width):
    model = tester.gaussian()
    step = pk.KameleonStep(model=model, compile_kwargs=FAST)
    climbing, _ = followed(step, model, 3, width)
    assert "climbing" in "\n".join(climbing)


def test_the_mean_is_over_a_window_and_without_what_no_proposal_was():
    model = tester.gaussian()
    step = pk.KameleonStep(model=model, compile_kwargs=FAST)
    step.set_rng(np.random.default_rng(1))
    point, accepted = model.initial_point(), []
    for _ in range(400):
        point, [row] = step.step(point)
        if row["move"] != "arrival":
            accepted.append(row["accept"])
            assert row.told.acceptance == pytest.approx(np.mean(accepted[-progress.WINDOW :]))
    assert len(accepted) > 200
    assert row.told == ("tuning", row.told.acceptance, step.evaluations)
    step.stop_tuning()
    _, [row] = step.step(point)
    assert row.told.phase == "drawing"
    step.reset_tuning()
    _, [row] = step.step(model.initial_point())
    assert row.told.acceptance == 0.0  # another chain begins
    assert row.told.phase == "climbing"


@pytest.mark.parametrize(
    ("error", "states", "says"),
    [
        (math.nan, 0.0, "none yet"), (math.inf, 0.0, "none yet"), (math.nan, 200.0, "by score"),
        (1e-7, 0.0, "<.01 nat"),
        (0.012, 0.0, "0.01 nat"), (3.456, 0.0, "3.46 nat"), (87.3, 0.0, "87 nat"), (1e9, 0.0, "9999 nat"),
    ],
)  # fmt: skip
def test_a_surrogates_status_fits_the_column(error, states, says):
    found = progress._surrogate({"surrogate_error": error, "n_history": states})
    assert found == says
    assert len(found) <= progress.WIDTH


def test_pymc_draws_with_it_to_the_end(width, monkeypatch):
    """pm.sample itself, its console captured."""
    screen = io.StringIO()
    monkeypatch.setattr(
        rich_progress, "Console", lambda **kwargs: Console(**{**kwargs, "file": screen, "width": width})
    )
    model = tester.gaussian()
    with model:
        pm.sample(
            50, tune=150, chains=2, cores=1, step=pk.FastKameleonStep(compile_kwargs=FAST), random_seed=1,
            compute_convergence_checks=False,
        )  # fmt: skip
    text = screen.getvalue()
    assert len(re.findall(r"(?<!\d)(?:1\.0|\.\d\d) draw", text)) == 2, text
    assert max(map(len, text.splitlines())) <= width


# -- pk.sample's own


class FakeRun:
    """What the bar reads of a run."""

    phase, warmup, nonfinite = "tune", [], 12

    class evaluated:
        size = 1234

    class hub:
        class fit:
            residual_sd = 0.123

        class learning:
            class schedule:
                refits = 7


class Judged:
    ess, rhat, nested = 412.3, 1.0123, 1.0123


def test_the_pooled_bar_is_legible_at_80_characters(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with Progress(True, FakeRun, 5000, 400) as bar:
        bar.update(Judged)
        screen = Console(file=io.StringIO(), width=80, color_system=None)
        screen.print(bar.bar.get_renderable())
    text = screen.file.getvalue()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    for what in ("1234/5000", "412 effective draws", "R-hat 1.012", "off by 0.12", "7 fits", "12 not finite"):
        assert all(word in words for word in what.split()), (what, text)
