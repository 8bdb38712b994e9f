"""PyMC's progress bar for these steps, on whichever PyMC is installed, read off a terminal of 80 characters."""

import io
import math
import re

import numpy as np
import pytest
from pymc.progress_bar import MCMCProgressBarManager, rich_progress
from rich.console import Console

import pymc_kameleon as pk
from pymc_kameleon.steps.told import progress
from pymc_kameleon.steps.told.pooled_progress import Progress
from tests import step_tester as tester

FAST = {"mode": "FAST_COMPILE"}


@pytest.fixture
def width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    return 80


def shown(manager, width):
    """What is on the terminal, line by line."""
    screen = Console(file=io.StringIO(), width=width, color_system=None)
    screen.print(manager._backend._progress.get_renderable())
    return [line.rstrip() for line in screen.file.getvalue().splitlines()]


def followed(kind, draws, width):
    """A step that tunes for ``draws`` draws and then draws as often, and its bar: the lines after each half."""
    model = tester.gaussian()
    step = tester.begin(kind(model=model, compile_kwargs=FAST), 1)
    manager = MCMCProgressBarManager(step, chains=1, draws=draws, tune=draws, progressbar=True)
    manager._backend._initialize_tasks()
    point, screens = model.initial_point(), []
    for draw in range(2 * draws):
        if draw == draws:
            screens.append(shown(manager, width))
            step.stop_tuning()
        point, statistics = step.step(point)
        manager.update(0, False, draw, draw < draws, statistics)
    return step, [*screens, shown(manager, width)]


def test_kamiltonian_shows_phase_acceptance_evaluations_and_surrogate(width):
    step, [tuning, drawing] = followed(pk.KamiltonianStep, 300, width)
    for lines, phase in ((tuning, "tun[ei]"), (drawing, "draw")):
        text = "\n".join(lines)
        assert max(map(len, lines)) <= width
        for column in (rf"(1\.0|\.\d\d) {phase}", r"<\.01 nat|\d nat", "Accept", "Eval", "Fit off"):
            assert re.search(column, text), text
        rows = "\n".join(lines[lines.index(next(line for line in lines if "───" in line)) :])
        assert "…" not in rows, text  # nothing is cut off, PyMC's clock included
        assert len(re.findall(r"\d:\d\d:\d\d", rows)) == 2, text
    assert re.search(rf"\b{step.evaluations}\b", "\n".join(drawing))


def test_other_steps_show_their_scale(width):
    step, [_, drawing] = followed(pk.KameleonStep, 200, width)
    text = "\n".join(drawing)
    assert re.search(r"(1\.0|\.\d\d) draw", text), text
    scale = step.sampler.stats(step.algorithm_state)["scaling"]
    assert f"{scale:.2g}" in text
    assert "Scal" in text


def test_the_first_draws_say_that_the_chain_climbs(width):
    _, [climbing, _] = followed(pk.KameleonStep, 3, width)
    assert "climbing" in "\n".join(climbing)


def test_the_mean_is_over_a_window_and_without_what_no_proposal_was():
    model = tester.gaussian()
    step = tester.begin(pk.KameleonStep(model=model, compile_kwargs=FAST), 1)
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
    ours = {"file": screen, "width": width}
    monkeypatch.setattr(rich_progress, "Console", lambda **kwargs: Console(**{**kwargs, **ours}))
    model = tester.gaussian()
    tester.sample(pk.FastKameleonStep(model=model, compile_kwargs=FAST), model, tune=150, progressbar=True)
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
