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


def given(log_period: np.ndarray, log_jitter: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The orbit's normal rest, given period and jitter, by period.

    Log of the marginal likelihood but for a constant, (n,); mean and variance of cosine, sine and offset, (n, 3).
    """
    days, v = real.velocities()
    phase = 2.0 * np.pi * days[None] * np.exp(-log_period)[:, None]
    design = np.stack([np.cos(phase), np.sin(phase), np.ones_like(phase)], axis=-1)
    variance = real.ERROR**2 + np.exp(2.0 * log_jitter)
    prior = np.array([real.AMPLITUDE_SD, real.AMPLITUDE_SD, real.OFFSET_SD]) ** -2.0
    precision = np.einsum("pti,ptj->pij", design, design) / variance + np.diag(prior)
    right = np.einsum("pti,t->pi", design, v) / variance
    covariance = np.linalg.inv(precision)
    mean = np.einsum("pij,pj->pi", covariance, right)
    log_like = -0.5 * (v @ v / variance + len(v) * np.log(variance)) + 0.5 * np.sum(mean * right, 1)
    log_like -= 0.5 * np.linalg.slogdet(precision)[1]
    return log_like, mean, np.diagonal(covariance, axis1=1, axis2=2)


def by_grid(periods: int = 40_000, jitters: int = 120) -> dict:
    """The orbit: moments of a mixture of normal distributions, one for each point of the grid."""
    low, high = real.PERIODS
    log_period = low + (np.arange(periods) + 0.5) / periods * (high - low)
    z = np.log(log_period - low) - np.log(high - log_period)
    grid = np.linspace(-9.0, np.log(5.0 * real.JITTER_SD), jitters)
    parts = [given(log_period, log_jitter) for log_jitter in grid]
    prior = stats.halfnorm(scale=real.JITTER_SD).logpdf(np.exp(grid)) + grid
    top = max(log_like.max() for log_like, *_ in parts)
    weights = [np.exp(part[0] - top + p) for part, p in zip(parts, prior, strict=True)]
    total, first, second = np.sum(weights), np.zeros(5), np.zeros(5)
    for log_jitter, (_, mean, spread), weight in zip(grid, parts, weights, strict=True):
        at = np.column_stack([z, mean, np.full(periods, log_jitter)])
        own = np.column_stack([np.zeros(periods), spread, np.zeros(periods)])
        first += weight @ at
        second += weight @ (at**2 + own)
    mean = first / total
    modes = _modes(log_period, np.sum(weights, axis=0) / total)
    sd = np.sqrt(second / total - mean**2)
    return {"mean": mean.tolist(), "sd": sd.tolist(), "how": f"grid; {modes}"}


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
