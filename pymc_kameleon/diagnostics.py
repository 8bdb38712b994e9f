"""How far a sampler's draws are from a known truth, and what they cost in log-density evaluations.

Effective sample size alone misleads: a chain that never enters the arms of a banana looks
efficient, and a constant one looks perfect. These measures compare with the truth of a
:class:`~pymc_kameleon.targets.Target`. R-hat, autocorrelation, intervals and the effective sample
size itself are ArviZ's.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

DECILES = tuple(np.arange(1, 10) / 10)


def quantile_deviation(levels: np.ndarray, quantiles: Sequence[float] = DECILES) -> float:
    """Mean over q of |share of draws inside the region of content q, minus q|.

    Parameters
    ----------
    levels : ndarray
        ``target.level(draws)``, any shape; all draws are pooled.
    quantiles : sequence of float
        Contents of the regions; 0.1 to 0.9 by default, as in Sejdinovic et al. (2014), section 5.

    Returns
    -------
    float
        For n independent draws about 0.3 / sqrt(n): 0.003 for 10,000.
    """
    return float(np.mean([abs(np.mean(levels <= q) - q) for q in quantiles]))


class ConfidenceRegions(NamedTuple):
    """Nominal and observed content of confidence regions; prints as a table in per cent.

    Attributes
    ----------
    probability, coverage : ndarray of shape (k,)
        Nominal content, and mean over the chains of the share of draws inside.
    standard_error : ndarray of shape (k,)
        From the spread between the chains; NaN for a single chain.
    """

    probability: np.ndarray
    coverage: np.ndarray
    standard_error: np.ndarray

    def __str__(self):
        rows = [
            f"{100 * p:8.1f} {100 * c:8.2f} {100 * s:8.2f}" for p, c, s in zip(*self, strict=True)
        ]
        return "\n".join([f"{'region':>8} {'inside':>8} {'± s.e.':>8}", *rows])


def confidence_regions(
    levels: np.ndarray, probabilities: Sequence[float] = (0.683, 0.90, 0.95, 0.99)
) -> ConfidenceRegions:
    """Share of draws inside the 68.3, 90, 95 and 99 % regions, as Haario et al. tabulate it.

    Parameters
    ----------
    levels : ndarray of shape (draws,) or (chains, draws)
        ``target.level`` of the draws.
    probabilities : sequence of float

    References
    ----------
    Haario, Saksman & Tamminen (1999), Adaptive proposal distribution for random walk Metropolis
    algorithm, Computational Statistics 14.
    """
    levels = np.atleast_2d(levels)
    inside = np.array([(levels <= p).mean(axis=1) for p in probabilities])  # (k, chains)
    n_chains = len(levels)
    error = np.full(len(inside), math.nan)
    if n_chains > 1:
        error = inside.std(axis=1, ddof=1) / math.sqrt(n_chains)
    return ConfidenceRegions(np.array(probabilities), inside.mean(axis=1), error)


def norm_of_mean(draws: np.ndarray, mean: np.ndarray | float = 0.0) -> np.ndarray | float:
    """Euclidean distance of the estimated from the true mean, in the target's own units.

    Parameters
    ----------
    draws : ndarray of shape (n, d) or (chains, n, d)
    mean : ndarray of shape (d,)
        True mean; zero by default.

    Returns
    -------
    float, or ndarray of shape (chains,)
    """
    return np.linalg.norm(np.mean(draws, axis=-2) - mean, axis=-1)


def _moments(x: np.ndarray, block: int = 4096) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Raw moment tensors E x, E x x^T and E x (x) x (x) x, of d, d^2 and d^3 numbers."""
    n, d = x.shape
    third = np.zeros((d * d, d))
    for start in range(0, n, block):
        part = x[start : start + block]
        third += (part[:, :, None] * part[:, None, :]).reshape(len(part), d * d).T @ part
    return x.mean(axis=0), x.T @ x / n, third / n


def _inner(a, b) -> float:
    """Inner product of mean embeddings.

    (1 + <x, y>)^3 = 1 + 3 <x, y> + 3 <x, y>^2 + <x, y>^3, and powers of <x, y> are tensor products.
    """
    return 1.0 + sum(
        c * float(np.vdot(u, v)) for c, u, v in zip((3.0, 3.0, 1.0), a, b, strict=True)
    )


def squared_mmd(x: np.ndarray, y: np.ndarray, *, unbiased: bool = False) -> float:
    """Squared maximum mean discrepancy of two samples with the kernel (1 + <x, y>)^3.

    The kernel's features are the moments up to order three, so the cost is linear in the number of
    draws: O(n d^3), and no Gram matrix.

    Parameters
    ----------
    x : ndarray of shape (n, d)
    y : ndarray of shape (m, d)
    unbiased : bool
        False: the V-statistic, the squared distance of the two embeddings; >= 0, and too large by
        O(1/n + 1/m). True: the U-statistic, without the terms k(x_i, x_i); unbiased for independent
        draws, may be negative.
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    a, b = _moments(x), _moments(y)
    if not unbiased:
        difference = [u - v for u, v in zip(a, b, strict=True)]
        return _inner(difference, difference) - 1.0
    total = -2.0 * _inner(a, b)
    for sample, moments in ((x, a), (y, b)):
        n = len(sample)
        diagonal = ((1.0 + np.square(sample).sum(axis=1)) ** 3).mean()
        total += (n * _inner(moments, moments) - diagonal) / (n - 1)
    return total


def mmd(x: np.ndarray, y: np.ndarray) -> float:
    """Maximum mean discrepancy with the kernel (1 + <x, y>)^3: root of the (biased) V-statistic.

    Dominated by the tails: quote :func:`mmd_floor` of the reference beside it.
    """
    return math.sqrt(squared_mmd(x, y))


class Floor(NamedTuple):
    """Mean and standard deviation over random splits."""

    mean: float
    sd: float


def mmd_floor(reference: np.ndarray, rng: np.random.Generator, repeats: int = 20) -> Floor:
    """MMD between random halves of an independent reference sample: what zero looks like.

    Parameters
    ----------
    reference : ndarray of shape (n, d)
        Exact draws. A comparison of n/2 independent draws with n/2 others has this MMD; the floor
        goes down as the root of the sample size.
    rng : numpy.random.Generator
        Splits the reference.
    repeats : int
        Number of splits.
    """
    half = len(reference) // 2
    values = []
    for _ in range(repeats):
        order = rng.permutation(len(reference))
        values.append(mmd(reference[order[:half]], reference[order[half : 2 * half]]))
    return Floor(float(np.mean(values)), float(np.std(values)))


def suboptimality(proposal_cov: np.ndarray, target_cov: np.ndarray) -> float:
    """Roberts and Rosenthal's b: the factor by which a random walk is slowed by a wrong covariance.

    b = d sum_i l_i^-2 / (sum_i l_i^-1)^2 with l_i the eigenvalues of S_p^(1/2) S^(-1/2), S_p the
    covariance of the proposal and S that of the target. b >= 1, with equality exactly for
    proportional covariances; scale does not matter.

    Parameters
    ----------
    proposal_cov, target_cov : ndarray of shape (d, d)
        Symmetric, positive definite.

    References
    ----------
    Roberts & Rosenthal (2009), Examples of adaptive MCMC, Journal of Computational and Graphical
    Statistics 18, section 2; Roberts & Rosenthal (2001), Statistical
    Science 16.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_kameleon.diagnostics import suboptimality
    >>> suboptimality(3 * np.eye(2), np.eye(2))
    1.0
    >>> print(f"{suboptimality(np.eye(2), np.diag([1.0, 4.0])):.3f}")
    1.111
    """
    root_proposal, root_target = _square_root(proposal_cov), _square_root(target_cov)
    # S_p^(1/2) S^(-1/2) is a product of two positive matrices: its eigenvalues are those of the
    # symmetric pencil (S_p^(1/2), S^(1/2)), real and positive.
    inverse = 1.0 / linalg.eigh(root_proposal, root_target, eigvals_only=True)
    return float(len(inverse) * np.square(inverse).sum() / inverse.sum() ** 2)


def _square_root(matrix):
    """Symmetric square root of a positive definite matrix."""
    values, vectors = linalg.eigh(matrix)
    if values[0] <= 0:
        raise ValueError(
            f"A covariance must be positive definite; smallest eigenvalue {values[0]:g}."
        )
    return (vectors * np.sqrt(values)) @ vectors.T


class CountingLogDensity:
    """A log density that counts how often it is called; the currency samplers are compared in.

    Parameters
    ----------
    log_density : callable

    Attributes
    ----------
    evaluations : int
        Calls so far, in this process; set it to 0 to start again.
    """

    def __init__(self, log_density: Callable[..., float]):
        self.log_density = log_density
        self.evaluations = 0

    def __call__(self, *args, **kwargs):  # noqa: D102
        self.evaluations += 1
        return self.log_density(*args, **kwargs)

    def __repr__(self):
        return f"CountingLogDensity({self.log_density!r}, evaluations={self.evaluations})"


class Efficiency(NamedTuple):
    """Bulk effective draws per 1000 evaluations: the worst and the median coordinate."""

    minimum: float
    median: float


def efficiency(draws: Any, evaluations: int, var_names: Sequence[str] | None = None) -> Efficiency:
    """Bulk effective sample size (ArviZ's) per 1000 log-density evaluations.

    Parameters
    ----------
    draws : ndarray of shape (chains, draws, d), InferenceData or DataTree
        Retained draws; of the last two the ``posterior`` group.
    evaluations : int
        Of all chains together, tuning and starts included.
    var_names : sequence of str, optional
        Which variables of the posterior; all by default, Deterministics as well.

    Notes
    -----
    A coordinate that never moved counts as 0 effective draws, where ArviZ returns their number.
    """
    import arviz as az

    if hasattr(draws, "posterior"):
        posterior = draws.posterior
        names = list(posterior.data_vars) if var_names is None else list(var_names)
        arrays = [posterior[name].transpose("chain", "draw", ...).values for name in names]
    else:
        arrays = [np.asarray(draws, dtype=float)]
    x = np.concatenate([a.reshape(*a.shape[:2], -1) for a in arrays], axis=2)
    ess = np.asarray(az.ess({"x": x}, method="bulk")["x"].values)
    ess = np.where(np.ptp(x, axis=(0, 1)) == 0, 0.0, ess)
    per_thousand = 1000.0 * ess / evaluations
    return Efficiency(float(per_thousand.min()), float(np.median(per_thousand)))


class MarginalTruth(NamedTuple):
    """What :func:`error_efficiency` compares with, per coordinate.

    Attributes
    ----------
    mean, variance : ndarray of shape (d,)
    quantiles : ndarray of shape (4, d)
        At 0.1, 0.25, 0.75 and 0.9.
    """

    mean: np.ndarray
    variance: np.ndarray
    quantiles: np.ndarray


def marginal_truth(draws: np.ndarray) -> MarginalTruth:
    """Truth from exact, independent draws.

    Parameters
    ----------
    draws : ndarray of shape (n, d)
        Many: their own error looks like a sampler's, so n should be a hundred times the number of
        effective draws that are to be measured.
    """
    quantiles = np.quantile(draws, (0.1, 0.25, 0.75, 0.9), axis=0)
    return MarginalTruth(draws.mean(axis=0), draws.var(axis=0), quantiles)


class ErrorEfficiency(NamedTuple):
    """Equivalent independent draws per 1000 evaluations.

    Attributes
    ----------
    worst, median : float
        Over the coordinates.
    coordinates : ndarray of shape (d,)
    relative_error : ndarray of shape (d,)
        Standard error of each coordinate's value, relative to it, from the spread of the chains.
    """

    worst: float
    median: float
    coordinates: np.ndarray
    relative_error: np.ndarray


def error_efficiency(
    draws: np.ndarray, truth: MarginalTruth, evaluations_per_chain: float
) -> ErrorEfficiency:
    """How many independent draws would estimate as well as a chain does, by squared error.

    Effective sample size cannot see a region that no chain has visited; an error against the truth
    does. Each chain estimates, for each coordinate, the mean, P(x < q10), P(x > q90) and
    P(q25 < x < q75). With e the error of such an estimate and s^2 the variance of the functional
    under the target, n independent draws have E e^2 / s^2 = 1 / n; so n is estimated by one over
    the mean of e^2 / s^2 over chains and functionals.

    Parameters
    ----------
    draws : ndarray of shape (chains, draws, d)
        Retained draws of independent chains, a dozen or more: the estimate has a relative error
        of about 0.4 with twelve.
    truth : MarginalTruth
    evaluations_per_chain : float
        Tuning and start included.
    """
    low, centre_low, centre_high, high = truth.quantiles
    estimates = np.stack(
        [
            draws.mean(axis=1) - truth.mean,
            (draws < low).mean(axis=1) - 0.1,
            (draws > high).mean(axis=1) - 0.1,
            ((draws > centre_low) & (draws < centre_high)).mean(axis=1) - 0.5,
        ]
    )  # (4, chains, d)
    indicator = np.ones_like(truth.variance)
    variances = np.stack([truth.variance, 0.09 * indicator, 0.09 * indicator, 0.25 * indicator])
    squared = (np.square(estimates) / variances[:, None, :]).mean(axis=0)  # (chains, d)
    error = squared.mean(axis=0)
    relative = squared.std(axis=0, ddof=1) / math.sqrt(len(squared)) / error
    coordinates = 1000.0 / error / evaluations_per_chain
    return ErrorEfficiency(
        float(coordinates.min()), float(np.median(coordinates)), coordinates, relative
    )
