"""How fast F-KAMH's proposal covariance becomes KAMH's as the number of features grows.

Kotlicki (2015), section 5.2: with nu = eta / (2 sqrt(n)), eta^2 J^T C J of D random features converges
to nu^2 M H M^T of the kernel. The history is n exact draws of the banana B(0.1, 100) in 8 dimensions;
the covariances are compared, by the Frobenius norm of their difference at eta = 1, at 15 points along
the ridge and at a far point, (0, -200, 0, ...).

    python -m benchmarks.feature_convergence

One to two minutes; prints the table (also written as Markdown) and draws the figure.
"""

import argparse
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import provenance, report
from benchmarks.basics import generators, versions
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.seam import Outcome, Point, Proposal
from pymc_kameleon.targets import Banana

TARGET = Banana(0.1, 100.0, 8)
SIZES = (10, 16, 26, 42, 70, 120, 200, 350, 600)
EMBEDDINGS = ("sincos", "cos")
PLACES = {"ridge": "15 points along the ridge", "far": "the far point (0, −200, 0, …)"}
ASYMPTOTIC = 70  # smallest D of the second slope
PUBLISHED = {"ridge": -0.6, "far": -1.0}


def ridge():
    """Fifteen points from one arm to the other, two standard deviations each way, shape (15, d)."""
    points = np.zeros((15, TARGET.dim))
    points[:, 0] = np.linspace(-20.0, 20.0, 15)
    points[:, 1] = TARGET.b * (points[:, 0] ** 2 - TARGET.v)
    return points


def far():
    point = np.zeros((1, TARGET.dim))
    point[0, 1] = -200.0
    return point


def before_learning(kind, history, **options):
    """A sampler, and its state one draw before it learns from ``history`` for the first time."""
    sampler = kind(**{**kind.presets["paper"], "local_start": len(history), **options})
    state = sampler.init(None, history[0])
    for x in history[:-1]:
        state = adapt(sampler, np.random.default_rng(0), state, x)
    return sampler, state


def adapt(sampler, rng, state, x):
    return sampler.adapt(rng, state, Outcome(x, 0.0, Proposal(x, 0.0), 0.0, 1.0, True))


def covariances(sampler, state, points):
    """The local covariance, before its scale and gamma enter, at every one of ``points``."""
    return np.array([sampler.place(state, Point(y, 0.0)).covariance for y in points])


class Errors(NamedTuple):
    """Frobenius errors of one embedding: root mean square over points and feature draws."""

    embedding: str
    place: str
    values: np.ndarray  # (sizes,)
    standard_errors: np.ndarray  # of the logarithm, (sizes,)
    slope: tuple[float, float]  # and its standard error
    late_slope: tuple[float, float]  # from D = ASYMPTOTIC on


def measure(n_history, repeats, seed):
    first, *rest = generators(seed, 1 + repeats)
    history = TARGET.sample(first, n_history)
    sampler, state = before_learning(Kameleon, history, n_history=n_history)
    state = adapt(sampler, first, state, history[-1])
    places = {"ridge": ridge(), "far": far()}
    exact = {p: covariances(sampler, state, points) for p, points in places.items()}
    lengthscale = state.model.lengthscale
    results = []
    for embedding in EMBEDDINGS:
        squares = {place: np.empty((len(SIZES), repeats)) for place in places}
        for i, size in enumerate(SIZES):
            options = {"embedding": embedding, "n_features": size, "lengthscale": lengthscale}
            fast, before = before_learning(FastKameleon, history, **options)
            for k, rng in enumerate(rest):
                learned = adapt(fast, rng, before, history[-1])
                for place, points in places.items():
                    approximate = covariances(fast, learned, points)
                    error = approximate - exact[place] / (4 * n_history)
                    squares[place][i, k] = np.square(error).sum(axis=(1, 2)).mean()
        results += [summarise(embedding, place, squares[place]) for place in places]
    scale = {
        p: math.sqrt(np.square(exact[p]).sum(axis=(1, 2)).mean()) / (4 * n_history) for p in exact
    }
    return results, scale, lengthscale


def summarise(embedding, place, squares):
    mean = squares.mean(axis=1)
    relative = squares.std(axis=1, ddof=1) / math.sqrt(squares.shape[1]) / mean
    late = SIZES.index(ASYMPTOTIC)
    return Errors(
        embedding, place, np.sqrt(mean), relative / 2, slope(squares, 0), slope(squares, late)
    )


def slope(squares, first):
    """Least-squares slope on log-log axes from the size number ``first`` on, and its standard error."""
    log_sizes = np.log(SIZES[first:])

    def fit(part):
        return float(np.polyfit(log_sizes, 0.5 * np.log(part[first:].mean(axis=1)), 1)[0])

    parts = [fit(part) for part in np.array_split(squares, 10, axis=1)]
    return fit(squares), float(np.std(parts, ddof=1)) / math.sqrt(len(parts))


def signed(value):
    """A number with a minus sign, not a hyphen."""
    return f"{value:g}".replace("-", "−")


def draw_figure(results, scale, path):
    figure, panels = report.subplots(1, 2, figsize=(10, 4.4), sharey=True)
    sizes = np.array(SIZES)
    for panel, place in zip(panels, PLACES, strict=True):
        for k, r in enumerate(r for r in results if r.place == place):
            panel.errorbar(
                sizes, r.values, yerr=2 * r.values * r.standard_errors, fmt="os"[k], ms=5, lw=1.2, ls="-",
                color=f"C{k}", label=f"{r.embedding}: {signed(round(r.late_slope[0], 2))} from D = {ASYMPTOTIC} on",
            )  # fmt: skip
        reference = np.mean([r.values[0] for r in results if r.place == place])
        panel.plot(sizes, 0.5 * reference * (sizes / sizes[0]) ** PUBLISHED[place], ls=":", color="0.4",
                   label=f"published slope: {signed(PUBLISHED[place])}")  # fmt: skip
        panel.set(
            xscale="log", yscale="log", title=f"At {PLACES[place]}", xlabel="number of features D"
        )
        panel.set_xticks([10, 30, 100, 300, 600], [10, 30, 100, 300, 600])
        panel.minorticks_off()
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(frameon=False, loc="lower left")
    panels[0].axhline(scale["ridge"], color="0.7", lw=1, zorder=0)
    panels[0].text(600, scale["ridge"] * 1.06, "size of KAMH's covariance", ha="right", color="0.4")
    panels[0].set_ylabel("Frobenius error of the covariance, η = 1")
    figure.tight_layout()
    report.save_figure(figure, path)


def table(results):
    header = ["D", *(f"{r.place}, {r.embedding}" for r in results)]
    rows = []
    for i, size in enumerate(SIZES):
        rows.append([str(size), *(f"{r.values[i]:.2e}" for r in results)])
    for label, attribute in (("slope", "slope"), (f"slope, D ≥ {ASYMPTOTIC}", "late_slope")):
        fits = [getattr(r, attribute) for r in results]
        rows.append([label, *(f"{value:.2f} ± {error:.2f}" for value, error in fits)])
    rows.append(["published", *(f"{PUBLISHED[r.place]:g}" for r in results)])
    return report.table(header, rows, left=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--history", type=int, default=1000, help="exact draws in the history")
    parser.add_argument("--repeats", type=int, default=100, help="draws of the features")
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    results, scale, lengthscale = measure(arguments.history, arguments.repeats, arguments.seed)
    print(table(results))
    arguments.output.mkdir(parents=True, exist_ok=True)
    draw_figure(results, scale, arguments.output / "feature_convergence.png")
    sections = [
        "# F-KAMH's proposal covariance approaches KAMH's",
        f"B(0.1, 100), d = 8; history of {arguments.history:,} exact draws, Gaussian kernel with the "
        f"median distance as lengthscale ({lengthscale:.1f}), η = 1, {arguments.repeats} draws of the "
        f"features; seed {arguments.seed}; {versions()}. Root mean square of the Frobenius error over "
        f"draws of the features and, on the ridge, its 15 points. Norm of KAMH's covariance: "
        f"{scale['ridge']:.2e} on the ridge, {scale['far']:.0e} at the far point.",
        table(results),
        "Why two slopes: the error e of the features' gradients falls as D^(-1/2). Where the kernel's own "
        "gradients g are not zero the covariance errs by terms in g e and in e², D^(-1/2) and D^(-1) "
        "together; far from the history g is zero and only e² is left.",
    ]
    provenance.write(arguments.output / "feature_convergence.md", "\n\n".join(sections))


if __name__ == "__main__":
    main()
