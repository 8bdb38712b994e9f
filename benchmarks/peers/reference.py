"""The truth about every target: mean and sd of its unconstrained coordinates, and how it is known.

- The twelve: in closed form or by quadrature, as ``cold_start`` has them.
- SEIR and the noisy three: importance sampling. A long chain of AdaptiveMetropolisStep, which is exact under noise too,
  says where the posterior is; a t distribution about it is sampled and weighted by prior times likelihood. With an
  unbiased estimate in the likelihood's place the weights are unbiased as well, so that the target is the one that exact
  steps sample. (Synthetic likelihood's is not unbiased for Wood's; its mean is the target here, for all.)
- Six patients: NUTS on the model in plain PyTensor, non-centred by hand, of ``benchmarks.hierarchical``.
- The orbit: given period and jitter all else is normal; those two by a fine grid.

    python -m benchmarks.peers.reference          # whatever is not stored, in results/peers_reference.json; 5 minutes
"""

import json
from pathlib import Path

import numpy as np
from scipy import stats

from benchmarks import cold_start, provenance
from benchmarks.peers import real

RESULTS = Path(__file__).parents[1] / "results"
STORE = RESULTS / "peers_reference.json"
PILOT, PILOT_RUNS, DF, WIDER, POINTS = 8_000, 4, 5.0, 1.3, 25_000


def moments(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd, shape (d,) each."""
    if name in cold_start.TARGETS:
        target = cold_start.TARGETS[name]
        return target.mean, np.sqrt(np.diag(target.cov))
    stored = load().get(name)
    if stored is None:
        raise ValueError(f"no reference for {name!r}: run python -m benchmarks.peers.reference")
    return np.array(stored["mean"]), np.array(stored["sd"])


def load() -> dict[str, dict]:
    """By target."""
    return json.loads(STORE.read_text()) if STORE.exists() else {}


def code() -> str:
    """Digest of the models."""
    return provenance.own_digest("benchmarks.peers.real", "benchmarks.peers.noisy")


def by_importance(name: str) -> dict:
    """Weights from a t distribution about a long chain."""
    from benchmarks.peers.cells import Cell, one_run
    from benchmarks.peers.targets import problem

    cell = Cell("adaptive_metropolis", name, PILOT, 77)
    chains = np.concatenate([one_run(cell, k)[0].values[0] for k in range(PILOT_RUNS)])
    envelope = stats.multivariate_t(chains.mean(0), WIDER * np.cov(chains.T), DF, seed=77)
    points, log_density = envelope.rvs(POINTS), problem(name).log_density(np.random.default_rng(78))
    log_weights = np.array([log_density(x) for x in points]) - envelope.logpdf(points)
    weights = np.exp(log_weights - log_weights[np.isfinite(log_weights)].max())
    weights = np.where(np.isfinite(weights), weights, 0.0)
    mean = np.average(points, axis=0, weights=weights)
    sd = np.sqrt(np.average(np.square(points - mean), axis=0, weights=weights))
    size = weights.sum() ** 2 / np.square(weights).sum()
    off = float(np.abs((chains.mean(0) - mean) / sd).max())
    how = (
        f"importance sampling, {POINTS} evaluations, {size:.0f} effective; the long chain's means differ by "
        f"{off:.2f} sds"
    )
    return {"mean": mean.tolist(), "sd": sd.tolist(), "how": how}


def by_grid() -> dict:
    """The orbit."""
    days, v = real.velocities()
    log_p = real.PERIODS[0] + (np.arange(40_000) + 0.5) / 40_000 * np.diff(real.PERIODS)[0]
    jitters = np.linspace(-9.0, np.log(5 * real.JITTER_SD), 120)  # log
    prior = np.array([real.AMPLITUDE_SD, real.AMPLITUDE_SD, real.OFFSET_SD]) ** -2.0
    phase = 2.0 * np.pi * days[None] * np.exp(-log_p)[:, None]
    design = np.stack([np.cos(phase), np.sin(phase), np.ones_like(phase)], axis=-1)
    gram, right = np.einsum("pti,ptj->pij", design, design), np.einsum("pti,t->pi", design, v)
    total, first, second = 0.0, np.zeros(5), np.zeros(5)
    z = np.log(log_p - real.PERIODS[0]) - np.log(real.PERIODS[1] - log_p)
    logs = []
    for log_jitter in jitters:
        variance = real.ERROR**2 + np.exp(2 * log_jitter)
        precision = gram / variance + np.diag(prior)
        factor = np.linalg.cholesky(precision)
        mean = np.linalg.solve(precision, (right / variance)[..., None])[..., 0]
        log_det = 2.0 * np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(1)
        log_like = -0.5 * (v @ v / variance + len(v) * np.log(variance))
        log_like = log_like + 0.5 * np.einsum("pi,pi->p", mean, right / variance) - 0.5 * log_det
        log_like += stats.halfnorm(scale=real.JITTER_SD).logpdf(np.exp(log_jitter)) + log_jitter
        logs.append((log_like, mean, np.diagonal(np.linalg.inv(precision), axis1=1, axis2=2)))
    top = max(l.max() for l, *_ in logs)
    by_period = np.zeros(len(log_p))
    for log_jitter, (log_like, mean, spread) in zip(jitters, logs, strict=True):
        weight = np.exp(log_like - top)
        by_period += weight
        at = np.column_stack([z, mean, np.full(len(z), log_jitter)])
        own = np.column_stack([np.zeros(len(z)), spread, np.zeros(len(z))])
        total += weight.sum()
        first += weight @ at
        second += weight @ (at**2 + own)
    mean = first / total
    modes = _modes(log_p, by_period / by_period.sum())
    return {
        "mean": mean.tolist(),
        "sd": np.sqrt(second / total - mean**2).tolist(),
        "how": f"grid; {modes}",
    }


def _modes(log_p, share):
    """In words: periods and their shares."""
    cuts = np.flatnonzero((share[1:-1] < share[:-2]) & (share[1:-1] <= share[2:])) + 1
    parts = np.split(np.arange(len(share)), cuts)
    found = sorted(
        ((share[i].sum(), np.exp(log_p[i[share[i].argmax()]])) for i in parts), reverse=True
    )
    return ", ".join(f"{p:.2f} days {100 * s:.0f} %" for s, p in found[:6] if s > 0.01)


def make(name: str) -> dict:
    """What is stored of a target."""
    if name == "orbit":
        return by_grid()
    if name == "PK, 6 patients":
        stored = json.loads((RESULTS / "hierarchical_reference.json").read_text())[name]
        how = (
            f"NUTS, non-centred, {stored['ess']:.0f} effective draws (hierarchical_reference.json)"
        )
        return {"mean": stored["mean"], "sd": stored["sd"], "how": how}
    return by_importance(name)


def main():
    for name in real.MODELS:
        stored = load()
        if stored.get(name, {}).get("code") == code():
            continue
        stored[name] = make(name) | {"code": code()}
        STORE.write_text(json.dumps(stored, indent=1) + "\n")
        print(name, stored[name], flush=True)


if __name__ == "__main__":
    main()
