"""Weights between modes: chains that learn together, before and after they know of modes.

Three posteriors whose modes no chain's own moves connect, as PyMC models. A cell is one run of
``pk.sample(max_evaluations=..., chains=16)``, "before" with modes not looked for.

    python -m benchmarks.modes                      # an hour; pm.sample_smc as it is by default on ``apart``, too
"""

import itertools
import math
from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import logsumexp

import pymc_kameleon as pk
from benchmarks import report
from benchmarks.cells import Benchmark, Cell
from pymc_kameleon.samplers.pooled import learning
from pymc_kameleon.verdict import convergence
from pymc_kameleon.verdict import report as sample_report

TOTALS = (2000, 4000)

# --- apart ------------------------------------------------------------------------------------------

DIM, DISTANCE, WEIGHTS, PRIOR_SD = 8, 20.0, (0.8, 0.2), 10.0


def components():
    """Means (2, d) and covariances (2, d, d): each 20 of its sds from the other's mean, at least."""
    rng = np.random.default_rng(8)
    sds = np.array([np.linspace(0.5, 2.0, DIM), np.linspace(1.5, 0.4, DIM)])
    covariances = []
    for sd in sds:
        q, _ = np.linalg.qr(rng.standard_normal((DIM, DIM)))
        root = q * np.sqrt(np.geomspace(0.1, 2.0, DIM))
        correlation = root @ root.T
        scale = np.sqrt(np.diag(correlation))
        covariances.append(correlation / np.outer(scale, scale) * np.outer(sd, sd))
    direction = rng.choice([-1.0, 1.0], DIM) * sds.mean(axis=0)
    away = max(DISTANCE / np.sqrt(direction @ np.linalg.solve(c, direction)) for c in covariances)
    return np.array([-0.5, 0.5])[:, None] * away * direction, np.array(covariances)


def apart():
    """Exactly the mixture: the prior is divided out of the likelihood."""
    means, covariances = components()
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, PRIOR_SD, shape=DIM)
        terms = []
        for weight, mean, covariance in zip(WEIGHTS, means, covariances, strict=True):
            inverse = np.linalg.inv(np.linalg.cholesky(covariance))
            z = pt.dot(inverse, x - mean)
            terms.append(math.log(weight) + np.log(np.diag(inverse)).sum() - 0.5 * pt.sum(z**2))
        pm.Potential("likelihood", pt.logsumexp(pt.stack(terms)) + 0.5 * pt.sum((x / PRIOR_SD) ** 2))
    normal = (means[1] - means[0]) / np.linalg.norm(means[1] - means[0])

    def is_first(posterior):
        return posterior["x"].values @ normal < 0.0

    return model, is_first, WEIGHTS[0], "jitter"


# --- alias ------------------------------------------------------------------------------------------

SPREAD = 10.0  # prior sd of amplitudes and offset, m/s
NIGHTS = 30


def velocities():
    """Times (days) and velocities (m/s) of a planet of 2.9 days, about once a night and never by day."""
    rng = np.random.default_rng(ALIAS_SEED)
    nights = np.sort(rng.choice(60, NIGHTS, replace=False))
    t = nights + 0.06 * rng.standard_normal(NIGHTS)
    v = 4.0 * np.cos(2.0 * np.pi * t / 2.9 + 1.0) + 1.0 + 2.5 * rng.standard_normal(NIGHTS)
    return t, v


ALIAS_SEED = 10
NOISE = (1.0, 0.5)  # prior mean and sd of its log
FREQUENCIES = (0.02, 0.98)  # 1/day


def orbit(f, t):
    """What two amplitudes and an offset multiply, (n, 3)."""
    phase = 2.0 * np.pi * f * t
    return np.column_stack([np.cos(phase), np.sin(phase), np.ones_like(t)])


def evidence(f, log_noise):
    """Log marginal likelihood of a frequency and a noise, amplitudes and offset integrated out, and the prior's."""
    t, v = velocities()
    design = orbit(f, t)
    covariance = SPREAD**2 * design @ design.T + math.exp(2.0 * log_noise) * np.eye(len(t))
    factor = np.linalg.cholesky(covariance)
    z = np.linalg.solve(factor, v)
    prior = -0.5 * ((log_noise - NOISE[0]) / NOISE[1]) ** 2
    return -0.5 * z @ z - np.log(np.diag(factor)).sum() + prior


def periodogram(step=2e-4):
    """Frequencies, and the log marginal likelihood of each."""
    f = np.arange(FREQUENCIES[0], FREQUENCIES[1], step)
    log_noise = np.linspace(NOISE[0] - 1.0, NOISE[0] + 1.0, 21)
    return f, np.array([logsumexp([evidence(a, b) for b in log_noise]) for a in f])


def peak(f, t, v) -> dict:
    """A peak of the periodogram as a start, with its amplitudes by least squares."""
    design = orbit(f, t)
    fitted = np.linalg.lstsq(design, v)[0]
    log_noise = float(np.log(np.std(v - design @ fitted)))
    return dict(zip(("frequency", "a", "b", "offset", "log_noise"), (f, *map(float, fitted), log_noise), strict=True))


def alias():
    """Two peaks of the periodogram and their sidelobes."""
    t, v = velocities()
    f, values = periodogram()
    weights = np.exp(values - logsumexp(values))
    low = f < 0.5
    tops = [float(f[part][np.argmax(values[part])]) for part in (low, ~low)]
    with pm.Model() as model:
        frequency = pm.Uniform("frequency", *FREQUENCIES)
        a, b, offset = (pm.Normal(name, 0.0, SPREAD) for name in ("a", "b", "offset"))
        log_noise = pm.Normal("log_noise", *NOISE)
        phase = 2.0 * np.pi * frequency * t
        mean = a * pt.cos(phase) + b * pt.sin(phase) + offset
        pm.Normal("v", mean, pt.exp(log_noise), observed=v)
    found = [peak(top, t, v) for top in tops]
    starts = [found[k // 4 % 2] for k in range(16)]  # alike for the chains of a quarter

    def is_first(posterior):
        return posterior["frequency"].values < 0.5

    return model, is_first, float(weights[low].sum()), starts


# --- labels -----------------------------------------------------------------------------------------


def labels(components: int):
    """Normal components of unknown means, sds and shares, in no order."""
    rng = np.random.default_rng(5)
    means = np.array([-3.0, 2.0, 7.0])[:components]
    which = rng.integers(components, size=60 * components)
    data = means[which] + np.array([1.0, 0.7, 1.2])[which] * rng.standard_normal(len(which))
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 5.0, shape=components)
        log_sd = pm.Normal("log_sd", 0.0, 0.5, shape=components)
        logit = pm.Normal("logit", 0.0, 1.0, shape=components - 1)
        shares = pm.math.log_softmax(pt.concatenate([[0.0], logit]), axis=0)
        z = (data[:, None] - mu) / pt.exp(log_sd)
        pm.Potential("likelihood", pt.sum(pt.logsumexp(shares - 0.5 * z**2 - log_sd, axis=1)))

    def is_first(posterior):
        m = posterior["mu"].values
        return (np.diff(m, axis=-1) > 0.0).all(axis=-1)

    middles = np.quantile(data, (np.arange(components) + 0.5) / components)
    orders = list(itertools.permutations(middles))
    starts = [{"mu": np.array(orders[k // 4 % len(orders)])} for k in range(16)]
    return model, is_first, 1.0 / math.factorial(components), starts


MODELS = {"apart": apart, "alias": alias, "labels 2": lambda: labels(2), "labels 3": lambda: labels(3)}


@cache
def model_of(target: str):
    """Model, the mode of interest, its weight, and the starts."""
    return MODELS[target]()


def measure(cell: Cell) -> dict:
    model, is_first, truth, start = model_of(cell.problem)
    if cell.sampler == "smc":
        with model:
            idata = pm.sample_smc(random_seed=cell.seed, cores=1, progressbar=False)
        return {"weights": is_first(idata["posterior"]).mean(axis=1).tolist(), "truth": truth}
    latest = learning.LATEST
    learning.LATEST = latest if cell.sampler == "after" else 0.0
    try:
        with model:
            idata = pk.sample(max_evaluations=cell.budget, initvals=start, random_seed=cell.seed, progressbar=False)
    finally:
        learning.LATEST = latest
    first = is_first(idata["posterior"])
    own = first.mean(axis=1)
    judged = convergence.judge(sample_report._flat(idata["posterior"])[1])
    return {
        "weight": float(own.mean()), "truth": truth,
        "z": float((own.mean() - truth) / max(own.std(ddof=1) / math.sqrt(len(own)), 1e-3)),
        "changes": int((np.diff(first.astype(int), axis=1) != 0).sum()), "ess": judged.ess, "rhat": judged.rhat,
        "modes": int(idata["posterior"].attrs["modes"]), "verdict": pk.report(idata).split(":")[0],
        "tuning": int(idata["posterior"].attrs["evaluations_tuning"]),
    }  # fmt: skip


def page(cells: dict[Cell, dict]) -> str:
    rows = []
    for target, total, when in itertools.product(MODELS, TOTALS, ("before", "after")):
        runs = [m for c, m in sorted(cells.items()) if c[:3] == (when, target, total)]
        if not runs:
            continue
        shown = (
            lambda r: f"{r['weight']:.2f}", lambda r: f"{r['z']:.1f}" if r["changes"] else "-",
            lambda r: str(r["changes"]), lambda r: f"{r['ess']:.0f}", lambda r: f"{r['rhat']:.2f}",
            lambda r: str(r["modes"]), lambda r: r["verdict"].split(" for")[0].lower(),
        )  # fmt: skip
        columns = [", ".join(map(form, runs)) for form in shown]
        rows.append([target, total, when, f"{runs[0]['truth']:.2f}", *columns])
    head = ["target", "evaluations", "", "truth", "weight", "z", "changes", "effective draws", "R-hat", "modes known",
            "report"]  # fmt: skip
    smc = [m["weights"] for c, m in sorted(cells.items()) if c.sampler == "smc"]
    table, how = report.table(head, rows), "2,000 draws, its chains one by one"
    text = report.page("modes", locals())
    if smc:
        each = "; ".join(", ".join(f"{w:.2f}" for w in weights) for weights in smc)
        text += f"\n``pm.sample_smc`` on ``apart``, by default ({how}; run after run): {each}."
    return text


if __name__ == "__main__":
    Benchmark("modes", measure, page, {"smc": "pymc"}).command(
        __doc__, ["after", "before", "smc"], list(MODELS), TOTALS, 3,
        lambda cell: cell.sampler != "smc" or cell[1:3] == ("apart", TOTALS[0]),
    )  # fmt: skip
