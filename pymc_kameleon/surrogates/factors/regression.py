"""Fit every factor of a log density to what its black box has returned so far.

All outputs of a factor share one design matrix, so that a factor in few inputs costs few evaluations however many
factors and unknowns there are: every evaluation of the log density is a design point for all of them. The degree is
chosen by the error on a held-out fifth, priced in units of the log density. Gram matrices of nested sets are
submatrices of the largest one's, which is computed once a factor.
"""

from typing import NamedTuple

import numpy as np
from scipy import linalg

from pymc_kameleon.surrogates.factors.emulator import Emulator
from pymc_kameleon.surrogates.factors.layout import Layout
from pymc_kameleon.surrogates.factors.polynomials import (
    CANDIDATES,
    columns,
    monomials,
    size,
    within,
)

RIDGES = (1e-10, 1e-8, 1e-6, 1e-4)  # relative to the mean square of a feature
FEW, RICH = 0.65, 0.45  # coefficients per point: of a quadratic, and of anything larger
LARGEST = 250  # monomials
MOST_POINTS = 1500
# squared radius of trust in that of the points: of a quadratic, and of anything that bends more
FAR, NEAR = 2.0, 1.4
EXACT, EVERYWHERE = 1e-8, 1e4  # an error that small is rounding: the black box is that polynomial
DEPTH = 0.15  # how fast weights of a log likelihood fall with its depth
GOOD = 1e-3  # squared error of the log density, of all factors together: no reason to look further


class Sample(NamedTuple):
    """What the black boxes have returned.

    Attributes
    ----------
    inputs : ndarray of shape (n, n_w)
    outputs : ndarray of shape (n, n_o)
    log_densities : ndarray of shape (n,)
        The whole log density there.
    """

    inputs: np.ndarray
    outputs: np.ndarray
    log_densities: np.ndarray


class Fit(NamedTuple):
    """A fitted emulator and how good it is.

    Attributes
    ----------
    emulator : Emulator
    errors : ndarray of shape (K,)
        Held-out errors, in units of the log density.
    degrees : tuple of (int, int)
        Of every factor's polynomial: degree, variables in one monomial.
    """

    emulator: Emulator
    errors: np.ndarray
    degrees: tuple

    @property
    def error(self) -> float:
        """Of all factors together."""
        return float(np.sqrt(np.square(self.errors).sum()))


class Polynomial(NamedTuple):
    """One fitted factor: monomials, their coefficients (m, outputs), its held-out error and its degree."""

    variables: np.ndarray
    powers: np.ndarray
    coefficients: np.ndarray
    error: float
    degree: tuple[int, int]


def fit(
    rng: np.random.Generator,
    layout: Layout,
    sample: Sample,
    reference: np.ndarray | None,
    here: np.ndarray,
    precision: np.ndarray,
    *,
    nearest: bool = False,
) -> Fit:
    """Fit all factors.

    Parameters
    ----------
    reference : ndarray of shape (m, n_w), or None
        Inputs where the emulators are wanted: they set centre, scale and trusted region. None: the better half of the
        sample.
    here : ndarray of shape (n_w,)
        Inputs at the chain's point, which is in the trusted region at any rate.
    precision : ndarray of shape (n_o,)
        -d^2 L / do^2: what a squared error of an output costs in squared log density.
    nearest : bool
        The reference of each factor is what is nearest to ``here`` in its own inputs: for a climb.

    Raises
    ------
    numpy.linalg.LinAlgError
        If some factor cannot be fitted: too few points, or too degenerate.
    """
    finite = np.isfinite(sample.outputs).all(axis=1) & np.isfinite(sample.inputs).all(axis=1)
    sample = Sample(*(a[finite] for a in sample))
    n_factors, widest = layout.size, layout.widest
    centre, scale = np.zeros(layout.inputs[-1]), np.ones(layout.inputs[-1])
    whitening, radius = np.zeros((n_factors, widest, widest)), np.zeros(n_factors)
    fitted: list[Polynomial] = []
    for k in range(n_factors):
        columns_k = layout.inputs_of(k)
        w, o = sample.inputs[:, columns_k], sample.outputs[:, layout.outputs_of(k)]
        added = bool(layout.added[k])
        own = _reference(w, o, sample.log_densities, added, reference, columns_k, here, nearest)
        centre_k, scale_k, whiten = _coordinates(own)
        centre[columns_k], scale[columns_k] = centre_k, scale_k
        d = len(centre_k)
        whitening[k, :d, :d] = whiten
        s = (w - centre_k) / scale_k
        square = np.square(s @ whiten.T).sum(axis=1)
        if added:
            typical = np.square((own - centre_k) / scale_k @ whiten.T).sum(axis=1)
            known = reference is not None and not nearest
            depth = _depth(o.sum(axis=1), square, np.quantile(typical, 0.9) if known else None)
            floor = 0.3 / np.sqrt(n_factors)
            weights = 1.0 / (floor**2 + (DEPTH * depth) ** 2)
            weights /= 1.0 + np.square(np.maximum(0.0, square / d - 9.0)) / 25.0
        elif nearest:
            weights = 1.0 / (1.0 + np.square(np.maximum(0.0, square / d - 2.0)))
        else:  # long tails, which the chain will see
            weights = 1.0 / (1.0 + np.maximum(0.0, square / d - 4.0))
        weights /= weights.max()
        chosen = np.flatnonzero(weights > 1e-9)
        if len(chosen) > MOST_POINTS:  # the heaviest, and of equals the latest
            chosen = np.sort(
                chosen[np.argsort(-weights[chosen][::-1], kind="stable")[:MOST_POINTS]]
            )
        fitted.append(
            fit_factor(
                rng, s[chosen], o[chosen], weights[chosen],
                precision[layout.outputs_of(k)], GOOD / n_factors,
            )
        )  # fmt: skip
        own_square = float(np.square(whiten @ ((here[columns_k] - centre_k) / scale_k)).sum())
        seen = np.sort(np.append(square[weights > 0.02], own_square))[::-1]
        farthest = seen[min(len(seen) // 100, len(seen) - 1)]
        reach = FAR if fitted[-1].degree[0] <= 2 else NEAR
        exact = fitted[-1].error ** 2 < EXACT / n_factors
        if exact and reference is not None and not nearest:
            reach = EVERYWHERE  # a wall in the tails would hold chains where the emulator is right
        radius[k] = np.sqrt(max(reach * farthest, 1.3 * own_square) + 1.0)
    errors = np.array([p.error for p in fitted])
    return Fit(
        _assemble(layout, centre, scale, whitening, radius, fitted, not nearest), errors,
        tuple(p.degree for p in fitted),
    )  # fmt: skip


def _reference(w, o, log_densities, added, reference, columns_k, here, nearest):
    """Where a factor's emulator is wanted, in its own inputs."""
    if nearest:
        d = w.shape[1]
        distance = np.square((w - here[columns_k]) / (w.std(axis=0) + 1e-300)).sum(axis=1)
        return w[np.argsort(distance, kind="stable")[: max((d + 1) * (d + 2), 20)]]
    if reference is not None:
        return reference[:, columns_k]
    score = o.sum(axis=1) if added else log_densities
    return w[score >= np.quantile(score, 0.5)]


def _coordinates(own):
    """Centre, scale and whitening matrix of the reference points."""
    d = own.shape[1]
    centre, scale = np.median(own, axis=0), own.std(axis=0)
    scale = np.where(scale > 0.0, scale, 1.0) + 1e-12
    if len(own) <= 3 * d:
        return centre, scale, np.eye(d)
    s = (own - centre) / scale
    correlation = 0.95 * np.cov(s.T, ddof=0).reshape(d, d) + 0.05 * np.eye(d)
    return centre, scale, linalg.inv(linalg.cholesky(correlation, lower=True))


def _depth(values, square, near):
    """How far each value of a log likelihood lies below a reference."""
    if near is not None and (square <= near).sum() > 10:
        level = np.quantile(values[square <= near], 0.2)
    else:
        level = np.quantile(values, 0.7)
    return np.maximum(0.0, level - values)


def fit_factor(
    rng: np.random.Generator, s: np.ndarray, outputs: np.ndarray, weights: np.ndarray,
    precision: np.ndarray, good: float,
) -> Polynomial:  # fmt: skip
    """The polynomial whose held-out error is smallest.

    Parameters
    ----------
    s : ndarray of shape (n, d)
    outputs : ndarray of shape (n, m)
    weights : ndarray of shape (n,)
    precision : ndarray of shape (m,)
    good : float
        Squared error of the log density at which the search ends.
    """
    n, d = s.shape
    held = rng.random(n) < 0.2
    held[rng.integers(n, size=3)] = True
    candidates = _affordable(n, d)
    variables, powers = monomials(d, max(c[0] for c in candidates), max(c[1] for c in candidates))
    keep = np.zeros(len(variables), dtype=bool)
    for degree, order in candidates:
        keep |= within(powers, degree, order)
    variables, powers = variables[keep], powers[keep]
    x = columns(s, variables, powers)
    size_of = np.sqrt((weights[:, None] * x * x).sum(axis=0) / weights.sum()) + 1e-300
    x = x / size_of
    train = _moments(x[~held], outputs[~held], weights[~held])
    rest = _moments(x[held], outputs[held], weights[held])
    free = powers.sum(axis=1) <= 2  # hardly shrunk
    best = None
    for degree, order in candidates:
        mine = np.flatnonzero(within(powers, degree, order))
        ridges = RIDGES[:1] if degree <= 2 else RIDGES
        for ridge in ridges:
            coefficients = _solve(train, mine, free, ridge)
            if coefficients is None:
                continue
            wrong = x[np.ix_(held, mine)] @ coefficients - outputs[held]
            error = _held_out(wrong, weights[held], precision)
            # a larger set has to earn it
            if best is None or error * (1.03 if degree > 2 else 1.0) < best[0]:
                best = (error, degree, order, mine, ridge)
        if best is not None and best[0] < good and degree >= 2:
            break
    if best is None:
        raise np.linalg.LinAlgError("no polynomial fits")
    error, degree, order, mine, ridge = best
    both = tuple(a + b for a, b in zip(train, rest, strict=True))
    coefficients = _solve(both, mine, free, ridge)
    if coefficients is None:
        raise np.linalg.LinAlgError("no polynomial fits")
    coefficients = coefficients / size_of[mine][:, None]
    return Polynomial(
        variables[mine], powers[mine], coefficients, float(np.sqrt(error)), (degree, order)
    )


def _affordable(n, d):
    """Candidates for n points in d inputs; a linear one only where there is nothing else.

    A plane that is good enough nearby is wrong a little further, and would end the search.
    """
    found: list[tuple[int, int]] = []
    for degree, order in CANDIDATES:
        chosen = (degree, min(order, d))
        p = size(d, *chosen)
        share = 1.0 if degree == 1 else FEW if degree == 2 else RICH
        if p <= min(share * n, LARGEST) and chosen not in found:
            found.append(chosen)
    if any(degree == 2 for degree, _ in found):
        found = found[1:]
    return found or [(1, 1)]


def _moments(x, outputs, weights):
    weighted = x * weights[:, None]
    return weighted.T @ x, weighted.T @ outputs, weights.sum()


def _solve(sums, mine, free, ridge):
    gram, moments, total = sums
    matrix = gram[np.ix_(mine, mine)].copy()
    matrix[np.diag_indices_from(matrix)] += total * np.where(free[mine], 1e-10, ridge)
    try:
        return linalg.cho_solve(
            linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False),
            moments[mine], check_finite=False,
        )  # fmt: skip
    except linalg.LinAlgError:
        return None


def _held_out(wrong, weights, precision):
    """Squared error of the log density; the worst twentieth of the points counts as the next worst."""
    square = (precision * np.square(wrong)).sum(axis=1)
    if not np.isfinite(square).all():
        return np.inf
    if len(square) > 10:
        square = np.minimum(square, np.quantile(square, 0.95))
    return float((weights * square).sum() / weights.sum())


def _assemble(layout, centre, scale, whitening, radius, fitted, straight):
    counts = np.array([len(p.variables) for p in fitted])
    sizes = np.array([p.coefficients.size for p in fitted])
    return Emulator(
        inputs=layout.inputs,
        outputs=layout.outputs,
        centre=centre,
        scale=scale,
        whitening=whitening,
        radius=radius,
        added=layout.added,
        first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        variables=np.ascontiguousarray(np.concatenate([p.variables for p in fitted])),
        powers=np.ascontiguousarray(np.concatenate([p.powers for p in fitted])),
        coefficients=np.concatenate([p.coefficients.ravel() for p in fitted]),
        start=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        straight=straight,
    )
