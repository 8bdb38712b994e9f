"""The papers' pictures: the function g, ellipses of proposals, the field of a surrogate.

*KAMH figure 1* (Sejdinovic et al., 2014): the cost whose gradient a proposal follows, g(x) = k(x, x) - 2 k(x, y) - 2
sum_i b_i [k(x, z_i) - m(x)], m the mean of k(., z_i), for two draws of b ~ N(0, nu^2 I), on a banana in the plane. A
proposal is y - grad g(y) / 2 or so plus noise, hence nu^2 M H M^T: checked by the spread of 20,000 such gradients.

*KAMH figures 2 and 6*: where 95 % of the proposals of every step with a local covariance end, over the first two
coordinates of a banana, a flower and a ring in 8 dimensions, drawn by ``plots.proposals``.

*Kotlicki (2015) figure 5.6*: the same of F-KAMH with 350 features, either embedding, and of KAMH, both from the same
2,500 exact draws of B(0.1, 100) in the plane, at 15 points.

*KMC figure 1* (Strathmann et al., 2015): the gradient field of N(0, I) in the plane and that of surrogates fitted to
200 exact draws, with one trajectory from the same start and momentum, and the acceptance probability along it.

    python -m benchmarks.papers.pictures         # three minutes
"""

import math

import numpy as np

from benchmarks import drive, report
from benchmarks.basics import leapfrog
from benchmarks.cells import Benchmark, Cell
from pymc_kameleon import FastKameleonStep, GaussianMixtureStep, KameleonStep, plots
from pymc_kameleon.kernels import Gaussian, get_kernel
from pymc_kameleon.plots.proposal_ellipses import kernels_of
from pymc_kameleon.samplers.kameleon.fast import FastKameleon
from pymc_kameleon.samplers.kameleon.full import Kameleon
from pymc_kameleon.samplers.kameleon.local_covariance import local_covariance
from pymc_kameleon.surrogates.scores import choose
from pymc_kameleon.surrogates.scores.objective import gradient
from pymc_kameleon.targets import Banana, Flower, Ring

SEED = 20260302
PLANE = Banana(0.03, 100.0, 2)

# --- the function g --------------------------------------------------------------------------------


def weights(rng, n, nu):
    """B ~ N(0, nu^2 H): taking the mean of k off is centring b."""
    b = nu * rng.standard_normal(n)
    return b - b.mean()


def cost(x, y, points, b, kernel, l):
    """G at x (m, d), up to its constant k(x, x)."""
    pull = kernel.value(y / l, x / l)
    return -2.0 * pull - 2.0 * sum(w * kernel.value(z / l, x / l) for w, z in zip(b, points, strict=True))


def cost_gradient(x, y, points, b, kernel, l):
    at = np.vstack([y[None], points])
    return -2.0 / l * kernel.gradient(x / l, at / l).T @ np.concatenate([[1.0], b])


def spread_of_gradients(rng, y, points, kernel, l, nu, n=20_000):
    """Largest relative error of the covariance of ``n`` gradients of g at y, against nu^2 M H M^T."""
    g = np.array([cost_gradient(y, y, points, weights(rng, len(points), nu), kernel, l) for _ in range(n)])
    exact = nu**2 * local_covariance(y, np.ascontiguousarray(points.T), kernel, l, "none")
    return float(np.abs(np.cov(g.T) - exact).max() / np.abs(exact).max())


def draw_cost():
    rng, kernel, l, nu = np.random.default_rng(SEED), Gaussian(), 5.0, 1.0
    points = PLANE.sample(rng, 100)
    y = np.array([7.0, 0.03 * (49.0 - 100.0)])
    xs, ys = np.meshgrid(np.linspace(-25, 25, 101), np.linspace(-10, 16, 81))
    grid = np.column_stack([xs.ravel(), ys.ravel()])
    some = np.column_stack([axis[::8, ::8].ravel() for axis in (xs, ys)])
    figure, panels = report.subplots(1, 2, figsize=(12, 4.6), sharey=True)
    for panel in panels:
        b = weights(rng, len(points), nu)
        g = cost(grid, y, points, b, kernel, l).reshape(xs.shape)
        image = panel.contourf(xs, ys, g, 20, cmap="gray")
        slopes = np.array([cost_gradient(x, y, points, b, kernel, l) for x in some])
        panel.quiver(*some.T, *(-slopes.T), color="C1", width=0.004)
        panel.plot(*points.T, "o", ms=3.5, color="C0", mec="white", mew=0.4, label="history z")
        panel.plot(*y, "*", ms=17, color="C3", mec="white", label="current point y")
        panel.set(xlim=(-25, 25), ylim=(-10, 16))
        panel.set_xlabel("x₁", fontsize=12)
        figure.colorbar(image, ax=panel)
    panels[0].set_ylabel("x₂", fontsize=12)
    panels[0].legend(loc="upper center", fontsize=11)
    figure.suptitle("g for two draws of the weights (light: large), and the way down", fontsize=13)
    report.save_figure(figure, "paper_cost")
    return spread_of_gradients(rng, y, points, kernel, l, nu)


# --- ellipses --------------------------------------------------------------------------------------

SHAPES = {"banana": Banana(0.03, 100.0, 8), "flower": Flower(), "ring": Ring()}
STEPS = {
    "KAMH, the paper's": (KameleonStep, {"preset": "paper"}),
    "KAMH, defaults": (KameleonStep, {}),
    "F-KAMH, the dissertation's": (FastKameleonStep, {"preset": "paper"}),
    "F-KAMH, defaults": (FastKameleonStep, {"screen": 0}),
    "Gaussian mixture": (GaussianMixtureStep, {}),
}
TUNE, DRAWS = 20_000, 1000


def tangent(name, x):
    """Direction of the target's ridge at x in the plane of the first two coordinates; of the curve through x."""
    if name == "banana":
        t = np.array([1.0, 2.0 * 0.03 * x[0]])
    else:
        target = SHAPES[name]
        theta = math.atan2(x[1], x[0])
        r = math.hypot(x[0], x[1])
        slope = -target.amplitude * target.frequency * math.sin(target.frequency * theta)
        t = slope * np.array([math.cos(theta), math.sin(theta)]) + r * np.array([-math.sin(theta), math.cos(theta)])
    return t / np.linalg.norm(t)


def alignment(name, kernel, x):
    """Mean cosine between an ellipse's long axis in the plane and the ridge, over points x (n, d): chance is 0.64."""
    found = []
    for point in x:
        _, vectors = np.linalg.eigh(kernel.covariance(point)[:2, :2])
        found.append(abs(vectors[:, 1] @ tangent(name, point)))
    return float(np.mean(found))


def measure(cell: Cell) -> dict:
    """One step's proposals over the three targets; the alignments of its local and its global move."""
    kind, options = STEPS[cell.sampler]
    figure, panels = report.subplots(1, 3, figsize=(12, 3.9))
    cells = []
    for panel, (name, target) in zip(panels, SHAPES.items(), strict=True):
        exact = target.sample(np.random.default_rng(SEED), 300)
        step = kind(model=target.pymc_model(), tune=TUNE, **options)
        start = {"x": exact[0]}
        drive.sample(DRAWS, tune=TUNE, chains=1, step=step, model=step.model, initvals=start, random_seed=SEED)
        plots.proposals(step, idata=exact, at=9, density=target.log_density, ax=panel)
        panel.set_title("", loc="left")  # the plot's own
        panel.set_title(f"{cell.sampler}: {name}", fontsize=13)
        panel.set(xlabel="x₁", ylabel="x₂" if panel is panels[0] else "")
        legend = panel.get_legend()
        if legend is not None:
            legend.remove()
        for kernel in kernels_of(step.sampler, step.algorithm_state):
            cells.append(f"{alignment(name, kernel, exact):.2f}")
    report.save_figure(figure, f"paper_proposals_{list(STEPS).index(cell.sampler) + 1}", 70)
    return {"row": cells}


# --- F-KAMH beside KAMH ----------------------------------------------------------------------------


def draw_ellipses():
    """Kotlicki (2015), 5.6: the picture; by embedding, how far its covariance is from KAMH's and its axis aside."""
    target, n, eta, gamma = Banana(0.1, 100.0, 2), 2500, 50.0, 0.5  # eta: where trial runs of 5.1 end
    rng = np.random.default_rng(SEED)
    past = target.sample(rng, n)
    points = np.column_stack([np.linspace(-20.0, 20.0, 15)] * 2)
    points[:, 1] = target.b * (points[:, 0] ** 2 - target.v)
    slow = Kameleon(**{**Kameleon.presets["paper"], "n_history": n})
    nu = eta / (2.0 * math.sqrt(n))  # eq. 4.8
    samplers = {"KAMH": (slow, nu)}
    for embedding in ("sincos", "cos"):
        options = {**FastKameleon.presets["paper"], "n_features": 350, "embedding": embedding}
        samplers[embedding] = FastKameleon(**options), eta
    figure, panel = report.subplots(1, 1, figsize=(9, 5))
    panel.plot(*past.T, ".", ms=2, color="0.75")
    found: dict[str, list] = {}
    for (name, (sampler, scale)), color in zip(samplers.items(), ("k", "C2", "C3"), strict=True):
        model = sampler.learn(rng, sampler.init(rng, past[0]), past)
        found[name] = [scale**2 * sampler.covariance(model, point) for point in points]
        for point, local in zip(points, found[name], strict=True):
            style = {"color": color, "lw": 1.5, "ls": "-" if color == "k" else "--"}
            panel.plot(*ellipse(point, gamma**2 * np.eye(2) + local, 0.95), **style)
        panel.plot([], [], label=name if name == "KAMH" else f"F-KAMH, {name}", **style)
    panel.plot(*points.T, ".", color="C1", ms=8)
    panel.set(xlabel="x₁", ylabel="x₂", xlim=(-30, 30), ylim=(-25, 45))
    panel.legend(frameon=False)
    report.save_figure(figure, "paper_ellipses", 80)
    table = []
    for name in ("sincos", "cos"):
        pairs = list(zip(found[name], found["KAMH"], strict=True))
        errors = [np.linalg.norm(f - k) / np.linalg.norm(k) for f, k in pairs]
        cosines = [abs(np.linalg.eigh(f)[1][:, 1] @ np.linalg.eigh(k)[1][:, 1]) for f, k in pairs]
        inner, outer = np.abs(points[:, 0]) < 12.0, np.abs(points[:, 0]) >= 12.0
        row = (f"{np.mean(np.array(values)[part]):.2f}" for values in (errors, cosines) for part in (inner, outer))
        table.append([name, *row])
    return table


def ellipse(centre, covariance, content):
    """Its boundary in the plane, shape (2, 100)."""
    angle = np.linspace(0.0, 2.0 * math.pi, 100)
    radius = math.sqrt(-2.0 * math.log(1.0 - content))
    return centre[:, None] + radius * np.linalg.cholesky(covariance) @ np.array([np.cos(angle), np.sin(angle)])


# --- the field of a surrogate ------------------------------------------------------------------------


def surrogates(rng, points):
    found = {}
    for name in ("lite", "finite"):
        recipe = choose.Recipe(
            kernel=get_kernel("gaussian"), surrogate=name, embedding="sincos", n_history=len(points), n_features=300,
            lengthscale=None, regularization=None, isotropic=True, base_scale=math.inf,
        )  # fmt: skip
        found[name] = choose.fit(rng, recipe, points).surrogate
    return found


def draw_fields():
    """The picture; of every gradient its error over further draws, and the acceptance along its trajectory."""
    rng = np.random.default_rng(SEED)
    points, held = rng.standard_normal((200, 2)), rng.standard_normal((500, 2))
    fields = {"true gradient": np.negative}
    for name, fitted in surrogates(rng, points).items():
        fields[f"KMC {name}"] = lambda z, s=fitted: gradient(np.ascontiguousarray(z), s)
    figure, panels = report.subplots(1, 4, figsize=(16, 4.4))
    xs, ys = np.meshgrid(*[np.linspace(-2.8, 2.8, 21)] * 2)
    grid = np.column_stack([xs.ravel(), ys.ravel()])
    start, momentum, table = np.array([1.3, 0.5]), np.array([-0.6, 1.2]), []
    for k, (name, slope) in enumerate(fields.items()):
        panel = panels[k]
        panel.contour(xs, ys, -0.5 * (xs**2 + ys**2), 6, colors="0.75", linewidths=0.8)
        arrows = np.array([slope(z) for z in grid])
        arrows /= 1.0 + np.linalg.norm(arrows, axis=1, keepdims=True)
        panel.quiver(*grid.T, *arrows.T, color="0.35", width=0.004)
        path_z, path_p = map(np.array, zip(*leapfrog(slope, start, momentum, 0.1, 100), strict=True))
        panel.plot(*path_z.T, color="C3", lw=2)
        panel.plot(*start, "o", color="C3", ms=9, mec="white")
        if k:
            panel.plot(*points.T, ".", color="C0", ms=3.5)
        panel.set(xlabel="x₁", xlim=(-2.8, 2.8), ylim=(-2.8, 2.8))
        panel.set_title(name, fontsize=13)
        energy = 0.5 * (np.square(path_p).sum(axis=1) + np.square(path_z).sum(axis=1))
        probability = np.exp(np.minimum(0.0, energy[0] - energy))
        panels[3].plot(probability, color=f"C{k}", marker="os^"[k], markevery=10, label=name, lw=1.6)
        error = np.square(np.array([slope(z) for z in held]) + held).mean() / np.square(held).mean()
        table.append([name, f"{math.sqrt(error):.2f}", f"{probability.min():.2f}", f"{probability.mean():.2f}"])
    panels[3].set(ylim=(0, 1.03), xlabel="leapfrog steps of 0.1")
    panels[3].set_title("acceptance probability", fontsize=13)
    panels[3].legend(frameon=False, fontsize=11)
    panels[0].set_ylabel("x₂")
    report.save_figure(figure, "paper_fields", 85)
    return table


def page(cells: dict[Cell, dict]) -> str:
    """All pictures; those that take no chain are drawn here."""
    per_cent = 100 * draw_cost()
    rows = [[name, *m["row"]] for name in STEPS for c, m in cells.items() if c.sampler == name]
    pictures = "\n\n".join(f"![Proposals of {s}](paper_proposals_{k}.png)" for k, s in enumerate(STEPS, 1))
    alignments = report.table(["step", *(f"{s}, {m}" for s in SHAPES for m in ("local", "global"))], rows)
    ellipses = report.table(["embedding", "error, near", "outer", "cosine, near", "outer"], draw_ellipses())
    fields = report.table(["gradient", "error", "least acceptance in 100 steps", "mean"], draw_fields())
    return report.page("paper_pictures", globals() | locals())


if __name__ == "__main__":
    Benchmark("paper_pictures", measure, page).command(__doc__, list(STEPS), ["ellipses"], (TUNE + DRAWS,))
