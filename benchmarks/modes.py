"""Weights between modes: chains that learn together, before and after they know of modes.

Three posteriors whose modes no chain's own moves connect, as PyMC models:

- ``apart``: two normal modes in 8 dimensions, 20 sds apart, with weights .8 and .2, unlike covariances, correlated;
- ``alias``: the radial velocities of a star with one planet, seen once a night, so that the orbit's frequency f and
  1 / day - f fit about equally; frequency, two amplitudes, offset and the log of the noise. Starts at the two highest
  peaks of the periodogram, as is usual. Truth by quadrature over frequency and noise, the amplitudes integrated out;
- ``labels 2``, ``labels 3``: mixtures of two and three normal components without an order, two and six modes of equal
  weight. Starts at quantiles of the data, their labels exchanged from one quarter of the chains to the next: of six
  modes four have a start, and the other two are not found.

A cell is one run of ``pk.sample(max_evaluations=..., chains=16)``, "before" with modes not looked for. Told is the
weight of one mode among all draws beside the truth, its z-score (the standard error is that of independent chains'
means; chains that never change have one, too, and it means nothing), how often chains changed modes, effective draws
and R-hat of the worst parameter.

    python -m benchmarks.modes [--minutes 10]       # what is missing; --target, --total, --seeds, --again
    python -m benchmarks.modes --smc                # pm.sample_smc on ``apart``
    python -m benchmarks.modes --table              # the table again
"""

import argparse
import itertools
import logging
import math
import time
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import logsumexp

import pymc_kameleon as pk
from benchmarks import basics, provenance, report
from pymc_kameleon import convergence, sample_report
from pymc_kameleon.samplers.modes import chains as modal_chains

RESULTS = Path(__file__).parent / "results"
STORE, TEXT = RESULTS / "modes.json", RESULTS / "modes.md"
TOTALS, SEEDS = (2000, 4000), 3
ROOTS = ("pymc_kameleon.samplers.modes.chains", "pymc_kameleon.samplers.kamiltonian.values.sampler")

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
        pm.Potential(
            "likelihood", pt.logsumexp(pt.stack(terms)) + 0.5 * pt.sum((x / PRIOR_SD) ** 2)
        )
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


def evidence(f, log_noise):
    """Log marginal likelihood of a frequency and a noise, amplitudes and offset integrated out, and the prior's."""
    t, v = velocities()
    phase = 2.0 * np.pi * f * t
    design = np.column_stack([np.cos(phase), np.sin(phase), np.ones_like(t)])
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
    phase = 2.0 * np.pi * f * t
    design = np.column_stack([np.cos(phase), np.sin(phase), np.ones_like(t)])
    fitted = np.linalg.lstsq(design, v)[0]
    log_noise = float(np.log(np.std(v - design @ fitted)))
    return dict(
        zip(
            ("frequency", "a", "b", "offset", "log_noise"),
            (f, *map(float, fitted), log_noise),
            strict=True,
        )
    )


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
    starts = [found[k // 4 % 2] for k in range(16)]  # four climbs, each for a group of chains

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


# --- cells ------------------------------------------------------------------------------------------

MODELS = {
    "apart": apart, "alias": alias, "labels 2": lambda: labels(2), "labels 3": lambda: labels(3),
}  # fmt: skip


@cache
def model_of(target: str):
    """Model, the mode of interest, its weight, and the starts."""
    return MODELS[target]()


def run(target: str, total: int, seed: int, looks: bool) -> dict:
    """What is stored of a cell."""
    model, is_first, truth, start = model_of(target)
    latest = modal_chains.LATEST
    modal_chains.LATEST = latest if looks else 0.0
    begin = time.process_time()
    try:
        with model:
            idata = pk.sample(
                max_evaluations=total, start=start, random_seed=seed, progressbar=False
            )
    finally:
        modal_chains.LATEST = latest
    seconds = time.process_time() - begin
    first = is_first(idata["posterior"])
    own = first.mean(axis=1)
    judged = convergence.judge(sample_report._flat(idata["posterior"])[1])
    moves, accept = (idata["sample_stats"][name].values for name in ("move", "accept"))
    jumps = moves == "jump"
    return {
        "weight": float(own.mean()),
        "truth": truth,
        "z": float((own.mean() - truth) / max(own.std(ddof=1) / math.sqrt(len(own)), 1e-3)),
        "changes": int((np.diff(first.astype(int), axis=1) != 0).sum()),
        "ess": judged.ess,
        "rhat": judged.rhat,
        "modes": int(idata["posterior"].attrs["modes"]),
        "tuning": int(idata["posterior"].attrs["evaluations_tuning"]),
        "accepted_jumps": float(accept[jumps].mean()) if jumps.any() else None,
        "verdict": pk.report(idata).split(":")[0],
        "seconds": seconds,
        "code": provenance.digest(*ROOTS),
    }


def smc(seed: int) -> dict:
    """``pm.sample_smc`` as it is by default, one process."""
    model, is_first, truth, _ = model_of("apart")
    begin = time.process_time()
    with model:
        idata = pm.sample_smc(random_seed=seed, cores=1, progressbar=False)
    own = is_first(idata["posterior"]).mean(axis=1)
    return {
        "weights": own.tolist(), "truth": truth, "seconds": time.process_time() - begin,
        "code": f"pymc {pm.__version__}",
    }  # fmt: skip


def key(*cell) -> str:
    """A cell's name in the store."""
    return " | ".join(map(str, cell))


def run_all(cells: list[tuple], minutes: float, again: bool = False) -> None:
    """Run and store what is missing, or all of it ``again``."""
    deadline = time.monotonic() + 60.0 * minutes
    for cell in cells:
        stored = report.load_cells(STORE).get(key(*cell))
        if stored is not None and not again:
            continue
        if time.monotonic() > deadline:
            print("stopped at the time limit; the same command goes on")
            return
        made = smc(cell[1]) if cell[0] == "smc" else run(*cell[:3], cell[3] == "after")
        report.save_cells(STORE, {key(*cell): made}, basics.versions())
        print(key(*cell), {k: v for k, v in made.items() if k != "code"}, flush=True)


# --- the table --------------------------------------------------------------------------------------


def _cells_text(runs):
    def several(form):
        return ", ".join(form(r) for r in runs)

    return (
        several(lambda r: f"{r['weight']:.2f}"), several(lambda r: f"{r['z']:.1f}" if r["changes"] else "-"),
        several(lambda r: str(r["changes"])), several(lambda r: f"{r['ess']:.0f}"),
        several(lambda r: f"{r['rhat']:.2f}"), several(lambda r: str(r["modes"])),
        several(lambda r: r["verdict"].split(" for")[0].lower()),
    )  # fmt: skip


def table(cells: dict) -> str:
    """Seed by seed."""
    rows = []
    for target in MODELS:
        for total in TOTALS:
            for when in ("before", "after"):
                runs = [cells.get(key(target, total, seed, when)) for seed in range(SEEDS)]
                runs = [r for r in runs if r is not None]
                if runs:
                    truth = f"{runs[0]['truth']:.2f}"
                    rows.append((target, total, when, truth, *_cells_text(runs)))
    header = [
        "target",
        "evaluations",
        "",
        "truth",
        "weight",
        "z",
        "changes",
        "effective draws",
        "R-hat",
        "modes known",
        "report",
    ]
    text = (__doc__ or "").split("\n\n    python")[0].split("\n", 2)[2]
    lines = ["# Weights between modes\n", text + "\n", report.table(header, rows) + "\n"]
    found = [cells[k] for k in sorted(cells) if k.startswith("smc")]
    if found:
        each = "; ".join(", ".join(f"{w:.2f}" for w in run["weights"]) for run in found)
        lines.append(
            f"``pm.sample_smc`` on ``apart``, by default (2,000 draws, its chains one by one; run after run): {each}.\n"
        )
    return "\n".join(lines)


def main():
    """See above."""
    logging.getLogger("pymc").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", nargs="+", default=list(MODELS))
    parser.add_argument("--total", nargs="+", type=int, default=list(TOTALS))
    parser.add_argument("--when", nargs="+", default=["after", "before"])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--smc", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--again", action="store_true", help="what is stored, too")
    chosen = parser.parse_args()
    if not chosen.table:
        wanted = [
            (target, total, seed, when)
            for total in chosen.total
            for when in chosen.when
            for seed in range(chosen.seeds)
            for target in chosen.target
        ]
        smcs = [("smc", seed) for seed in range(SEEDS)]
        run_all(smcs if chosen.smc else wanted, chosen.minutes, chosen.again)
    cells, now = report.load_cells(STORE), provenance.digest(*ROOTS)
    made = (
        (k.split(" | ")[0], c["code"], now) for k, c in cells.items() if not k.startswith("smc")
    )
    provenance.write(TEXT, table(cells), "modes", stale_cells=provenance.stale_cells(made))


if __name__ == "__main__":
    main()
