"""Regress the log density on features at every point ever evaluated, accepted or rejected.

Weighted ridge regression on one of a small library of feature families, chosen with its lengthscale
and its ridge by squared error on held-out points. With y_i the log density at x_i and y_ref a low
quantile of the chain's own,

    w_i = 1 / {s0^2 + (c max(0, y_ref - y_i))^2}:

an error of c = 15 % of the depth is as good as one of s0 at the top, because far out only the sign
of the slope matters. s0 is the typical held-out residual of the previous fit, which is how the
weights adapt to noise.

A polynomial comes before any kernel, and the quadratic is hardly penalised, because of what they do
where there is no data: at equal held-out error a polynomial extrapolates a hundred times better.

Differs from the kernel-smoothing and score-matching surrogates of the literature: those see the
chain's states only, and need them to be draws from the target. Values need not be: a rejected
proposal says as much about the log density as an accepted one.
"""

from typing import NamedTuple

import numpy as np
from scipy import linalg

from pymc_kameleon import value_features as features
from pymc_kameleon.value_features import FOURIER, GAUSSIAN, LOG_LADDER, PAIRWISE, Surrogate

REFERENCE_QUANTILE = 0.3  # of the chain's log densities: y_ref
RELATIVE_ERROR = 0.15  # c
FLOOR = (0.3, 2.0)  # range of s0
HELD_OUT = 0.2
GOOD_ENOUGH = 0.003  # weighted held-out squared error at which the search stops
RIDGES = 10.0 ** np.arange(-10.0, 1.0, 2.0)
QUADRATIC_RIDGE = 1e-10
MAX_MONOMIALS = 700
KEPT = 30  # monomials of the last fit, where not all can be had
SCREENED = (100, 300)  # their number after each stage of the search for more
SCREENING_QUANTILE = 0.8
SCREENING_RIDGE = 1e-4
BLOCK = 500  # monomials at a time: thousands of columns would need much memory
NO_MONOMIALS = np.zeros((0, 3), dtype=np.int64)
MAX_CENTRES = 300
MAX_WORK = 4e10  # multiply-adds of one search: one to four seconds on one core


class Family(NamedTuple):
    """One entry of the library.

    Attributes
    ----------
    name : str
    monomials : bool
    kind : int
        Of kernel, see :mod:`pymc_kameleon.value_features`.
    lengthscale : float
    tail_scale : float
        q of the rational tails; 0 for none.
    price : float
        The held-out squared error is multiplied by it: a richer family must earn its place.
    """

    name: str
    monomials: bool = False
    kind: int = features.NONE
    lengthscale: float = 1.0
    tail_scale: float = 0.0
    price: float = 1.0


LIBRARY = (
    Family("quadratic"),
    Family("polynomial", True, price=1.02),
    Family("polynomial+gaussian4", True, GAUSSIAN, 4.0, price=1.05),
    Family("pairwise1", False, PAIRWISE, 1.0, price=1.15),
    Family("tails4", False, tail_scale=4.0, price=1.02),
    Family("polynomial+gaussian2", True, GAUSSIAN, 2.0, price=1.05),
    Family("polynomial+gaussian8", True, GAUSSIAN, 8.0, price=1.05),
    Family("tails16+gaussian4", False, GAUSSIAN, 4.0, 16.0, price=1.05),
    Family("polynomial+fourier", True, FOURIER, price=1.05),
    Family("pairwise0.5", False, PAIRWISE, 0.5, price=1.15),
    Family("pairwise2", False, PAIRWISE, 2.0, price=1.15),
    Family("pairwise4", False, PAIRWISE, 4.0, price=1.15),
)


class Fit(NamedTuple):
    """A fitted surrogate and what is known about its quality.

    Attributes
    ----------
    surrogate : Surrogate
    family : str
    error : float
        Root of the weighted, clipped held-out squared error of the chosen family.
    top_error : float
        The same, unweighted, over held-out points near the top: what ``relative_error`` is chosen
        by.
    residual_sd : float
        Robust sd of the held-out residual at the points of high weight: the s0 of the next fit.
    relative_error : float
        c.
    ridge : float
    quadratic_error : float
        ``error`` of the plain quadratic.
    curvature : ndarray of shape (d, d)
        Second derivative, in s, of the plain quadratic fitted with the same weights.
    whiten_factor : ndarray of shape (d, d)
        Cholesky factor of the chain's correlation.
    n_points : int
    """

    surrogate: Surrogate
    family: str
    error: float
    top_error: float
    residual_sd: float
    relative_error: float
    ridge: float
    quadratic_error: float
    curvature: np.ndarray
    whiten_factor: np.ndarray
    n_points: int


class Data(NamedTuple):
    """The regression problem in standardised coordinates."""

    s: np.ndarray  # (n, d)
    z: np.ndarray  # (n, d)
    y: np.ndarray  # (n,), log density minus ``offset``
    weights: np.ndarray  # (n,), at most 1
    held_out: np.ndarray  # (n,), bool
    offset: float
    reference: float  # y_ref minus ``offset``
    template: Surrogate
    whiten_factor: np.ndarray


class Basis(NamedTuple):
    """Columns of one family, and how to turn their coefficients into a surrogate."""

    family: Family
    template: Surrogate
    base: int  # how many of the shared columns (quadratic, then monomials) it uses
    extra: np.ndarray  # (n, k) columns of its own
    extra_scale: np.ndarray  # (k,), what they were divided by
    projection: np.ndarray | None  # (centres, k'), Nystroem


class Shared(NamedTuple):
    """The columns that most families share, with their weighted Gram matrices over both parts of the data."""

    columns: np.ndarray  # (n, p), of unit weighted root mean square
    scale: np.ndarray  # (p,)
    variables: np.ndarray
    powers: np.ndarray
    train: np.ndarray  # (p, p)
    test: np.ndarray


class Candidate(NamedTuple):
    """A family with the ridge that suits it."""

    basis: Basis
    ridge: float
    error: float  # weighted clipped mean square on held-out points
    residual: np.ndarray  # of the held-out points
    gram: np.ndarray  # over all points
    moment: np.ndarray


def fit(
    rng: np.random.Generator,
    positions: np.ndarray,
    log_densities: np.ndarray,
    chain: np.ndarray,
    chain_log_densities: np.ndarray,
    previous: Fit | None = None,
    full: bool = True,
    library: tuple[Family, ...] = LIBRARY,
) -> Fit:
    """Fit a surrogate.

    Parameters
    ----------
    positions, log_densities : ndarray of shape (n, d), (n,)
        All evaluated points; those that are not finite are left out.
    chain, chain_log_densities : ndarray of shape (m, d), (m,)
        Recent states of the chain: they set the coordinates and y_ref.
    previous : Fit, optional
        Its family is tried again, its residual sets s0, its c is kept.
    full : bool
        Search the whole library, and c; otherwise the quadratic, the polynomial and the previous
        winner.
    library : tuple of Family

    Returns
    -------
    Fit

    Raises
    ------
    numpy.linalg.LinAlgError
        If there are too few distinct points to fit even a quadratic.
    """
    relative = RELATIVE_ERROR if previous is None or full else previous.relative_error
    floor = FLOOR[0] if previous is None else min(max(previous.residual_sd, FLOOR[0]), FLOOR[1])
    finite = np.isfinite(log_densities)
    if finite.sum() < features.quadratic_size(positions.shape[1]):
        raise np.linalg.LinAlgError(f"{finite.sum()} finite values are too few for a quadratic")
    if not finite.all():
        positions, log_densities = positions[finite], log_densities[finite]
    latest = most_points(positions.shape[1])
    positions, log_densities = positions[-latest:], log_densities[-latest:]
    depths = _without_noise(positions, log_densities, previous)
    problem = (positions, log_densities, depths, chain, chain_log_densities, floor)
    families = _shortlist(library, None if previous is None else previous.family, full)
    earlier = None if previous is None else previous.surrogate
    best = _search(rng, prepare(rng, *problem, relative), families, relative, earlier)
    if full and best.top_error**2 > GOOD_ENOUGH:
        for other in (
            0.05,
            0.4,
        ):  # a larger c lets go of the tails: it must be clearly better at the top
            winner = tuple(f for f in library if f.name == best.family)
            try:
                rival = _search(rng, prepare(rng, *problem, other), winner, other, earlier)
            except np.linalg.LinAlgError:
                continue
            if rival.top_error**2 < (0.85 if other > RELATIVE_ERROR else 1.02) * best.top_error**2:
                best = rival._replace(quadratic_error=best.quadratic_error)
    return best


def most_points(d: int) -> int:
    """How many points a fit can afford: the quadratic's n p^2 must stay below ``MAX_WORK``."""
    return int(MAX_WORK / features.quadratic_size(d) ** 2)


def affordable(d: int) -> bool:
    """Whether a quadratic in ``d`` dimensions can be fitted within ``MAX_WORK``: up to d = 78."""
    return most_points(d) > 1.2 * features.quadratic_size(d)


def _without_noise(positions, log_densities, previous: Fit | None):
    """Values to take the depth in the weights from: f where it agrees with y, y elsewhere.

    Weights that follow the noise in y bias the fit (upwards, and more so further out).
    """
    if previous is None:
        return log_densities
    smooth = features.values(previous.surrogate, np.ascontiguousarray(positions))
    agree = np.abs(smooth - log_densities) < 4.0 * previous.residual_sd
    return np.where(agree, smooth, log_densities)


def prepare(
    rng: np.random.Generator,
    positions,
    log_densities,
    depths,
    chain,
    chain_log_densities,
    floor,
    relative,
) -> Data:
    """Coordinates from the chain, relative-error weights, and the random held-out fifth."""
    centre = np.median(chain, axis=0)
    scale = chain.std(axis=0) + 1e-9 * np.abs(centre) + 1e-300
    d = len(centre)
    correlation = np.cov(((chain - centre) / scale).T, ddof=0).reshape(d, d)
    factor = np.linalg.cholesky(0.999 * correlation + 0.001 * np.eye(d))
    whiten = np.linalg.inv(factor)
    reference = np.quantile(chain_log_densities, REFERENCE_QUANTILE)
    offset = float(np.median(chain_log_densities))
    weights = 1.0 / (floor**2 + np.square(relative * np.maximum(0.0, reference - depths)))
    weights /= weights.max()
    kept = weights > 1e-10
    s = (positions[kept] - centre) / scale
    return Data(
        s=s,
        z=s @ whiten.T,
        y=log_densities[kept] - offset,
        weights=weights[kept],
        held_out=rng.random(int(kept.sum())) < HELD_OUT,
        offset=offset,
        reference=float(reference) - offset,
        template=features.blank(centre, scale, whiten),
        whiten_factor=factor,
    )


def _shortlist(library, previous, full):
    if full or previous is None:
        return library
    names = ("quadratic", "polynomial", previous)
    return tuple(f for f in library if f.name in names)


def _search(rng, data: Data, families, relative, earlier: Surrogate | None) -> Fit:
    """The family, lengthscale and ridge with the least priced held-out error, refitted on all points."""
    n, d = data.s.shape
    quadratic_size = features.quadratic_size(d)
    if n < quadratic_size or not data.held_out.any() or data.held_out.all():
        raise np.linalg.LinAlgError(f"{n} values near the top are too few for a quadratic")
    enough = n > 1.2 * quadratic_size
    shared = share_columns(data, enough and any(f.monomials for f in families), earlier)
    # The quadratic is always fitted: its curvature sets the metric of the dynamics
    quadratic = _evaluate(data, shared, quadratic_basis(data))
    if quadratic is None:
        raise np.linalg.LinAlgError("the evaluated points do not determine a quadratic")
    best, work = quadratic, 0.0
    many = n >= int(1.5 * quadratic_size)  # the first fit of a chain has just so many
    if quadratic.error < GOOD_ENOUGH and many:
        families = ()
    for family in families:
        if family.name == "quadratic" or not enough:
            continue
        basis = build(rng, data, shared, family)
        if basis is None:
            continue
        k = basis.extra.shape[1]
        p = basis.base + k
        cost = n * k * (basis.base + 0.5 * k) + 3.0 * p**3 / 3.0
        if work + cost > MAX_WORK:
            continue
        work += cost
        candidate = _evaluate(data, shared, basis)
        if candidate is None:
            continue
        if candidate.error * family.price < best.error * best.basis.family.price:
            best = candidate
        if candidate.error < GOOD_ENOUGH and n > 1.5 * p:
            break
    return _finish(data, shared, best, quadratic, relative)


def share_columns(data: Data, monomials: bool, earlier: Surrogate | None = None) -> Shared:
    """Quadratic columns, then the richest set of monomials with at most min(0.35 n, 700) terms.

    Where not even the quartic in pairs of variables has so few, beyond 16 dimensions, its most promising terms: those
    that mattered ``earlier`` and those that :func:`_screen` finds.
    """
    columns = features.quadratic_features(data.s)
    variables = powers = NO_MONOMIALS
    if monomials:
        variables, powers = _choose_monomials(data, columns, earlier)
        columns = np.concatenate(
            [columns, features.monomial_features(data.s, variables, powers)], axis=1
        )
    scale = _size(columns, data.weights)
    columns = columns / scale
    train, test = ~data.held_out, data.held_out
    grams = [_gram(columns[part], columns[part], data.weights[part]) for part in (train, test)]
    return Shared(columns, scale, variables, powers, *grams)


def _choose_monomials(data: Data, quadratic, earlier):
    n, d = data.s.shape
    pairs = features.monomial_exponents(d, 4, 2)
    if len(pairs[0]) > MAX_MONOMIALS:
        return _screen(data, quadratic, *pairs, earlier)
    for degree, order in ((4, 3), (4, 2), (3, 3), (3, 2)):
        variables, powers = features.monomial_exponents(d, degree, order)
        if len(variables) <= min(0.35 * n, MAX_MONOMIALS):
            return variables, powers
    return NO_MONOMIALS, NO_MONOMIALS


def _screen(data: Data, quadratic, variables, powers, earlier):
    """The monomials that correlate most with what the quadratic leaves over, in two stages.

    The second stage looks at what the first selection leaves over: in a banana, x_0^4 and x_0^2 x_1 hide each other.
    Residuals are clipped, or a few points far out decide. Held-out points have no say.
    """
    train, weights = ~data.held_out, data.weights[~data.held_out]
    s, y, root = data.s[train], data.y[train], np.sqrt(weights)
    base = quadratic[train] / _size(quadratic[train], weights)
    chosen = _largest(s, weights, variables, powers, earlier)
    for keep in SCREENED:
        extra = features.monomial_features(s, variables[chosen], powers[chosen])
        columns = np.concatenate([base, extra / _size(extra, weights)], axis=1)
        moment = columns.T @ (weights * y)
        gram = _gram(columns, columns, weights)
        fitted = columns @ _solve_stubbornly(
            gram, moment, base.shape[1], SCREENING_RIDGE, weights.sum()
        )
        residual = root * (y - fitted)
        if residual @ residual < GOOD_ENOUGH * weights.sum():
            break
        bound = np.quantile(np.abs(residual), SCREENING_QUANTILE)
        score = _correlate(s, variables, powers, root, np.clip(residual, -bound, bound))
        score[chosen] = np.inf
        size = int(min(keep, 0.35 * len(data.s)))
        chosen = np.sort(np.argsort(-score, kind="stable")[:size])
    return variables[chosen], powers[chosen]


def _largest(s, weights, variables, powers, earlier):
    """Where among ``variables`` and ``powers`` the monomials are that contributed most to the earlier surrogate."""
    if earlier is None or not len(earlier.monomials):
        return np.zeros(0, dtype=np.int64)
    size = _size(features.monomial_features(s, earlier.variables, earlier.powers), weights)
    order = np.argsort(-np.abs(earlier.monomials) * size, kind="stable")[:KEPT]
    where = {key: k for k, key in enumerate(map(tuple, np.hstack([variables, powers]).tolist()))}
    keys = map(tuple, np.hstack([earlier.variables, earlier.powers])[order].tolist())
    return np.sort(np.array([where[key] for key in keys], dtype=np.int64))


def _correlate(s, variables, powers, root, residual):
    """|cosine|, up to a constant, between each monomial and the residual, both weighted."""
    score = np.empty(len(variables))
    for begin in range(0, len(score), BLOCK):
        block = slice(begin, begin + BLOCK)
        columns = features.monomial_features(s, variables[block], powers[block]) * root[:, None]
        score[block] = np.abs(residual @ columns) / (np.linalg.norm(columns, axis=0) + 1e-300)
    return score


def _size(columns, weights):
    """Weighted root mean square of every column."""
    return np.sqrt(weights @ np.square(columns) / weights.sum()) + 1e-300


def _gram(a, b, weights):
    root = np.sqrt(weights)[:, None]
    if a is b:
        a = a * root
        return a.T @ a
    return (a * root).T @ (b * root)


def quadratic_basis(data: Data) -> Basis:
    """The plain quadratic, always there."""
    n, d = data.s.shape
    return Basis(
        LIBRARY[0], data.template, features.quadratic_size(d), np.zeros((n, 0)), np.zeros(0), None
    )


def build(rng: np.random.Generator, data: Data, shared: Shared, family: Family) -> Basis | None:
    """Columns of ``family``; None if it asks for monomials and there are too many of them."""
    n, d = data.s.shape
    base = features.quadratic_size(d)
    template, columns, scales, projection = data.template, [], [], None
    if family.monomials:
        if not len(shared.variables):
            return None
        base += len(shared.variables)
        template = template._replace(variables=shared.variables, powers=shared.powers)
    size = int(min(MAX_CENTRES, 0.4 * n))
    if family.kind == FOURIER:
        frequencies, phases = features.sparse_frequencies(rng, size, d)
        columns.append(features.fourier_features(data.s, frequencies, phases) * np.sqrt(2.0 / size))
        scales.append(np.full(size, np.sqrt(0.5 * size)))
        template = template._replace(kind=FOURIER, centres=frequencies, phases=phases)
    elif family.kind in (GAUSSIAN, PAIRWISE):
        kernel, points = (
            (features.gaussian_kernel, data.z)
            if family.kind == GAUSSIAN
            else (features.pairwise_kernel, data.s)
        )
        chances = np.minimum(data.weights, np.median(data.weights))
        chosen = rng.choice(n, size=size, replace=False, p=chances / chances.sum())
        centres = np.ascontiguousarray(points[chosen])
        projection = _nystroem(kernel(centres, centres, family.lengthscale))
        columns.append(kernel(points, centres, family.lengthscale) @ projection)
        scales.append(np.ones(projection.shape[1]))
        template = template._replace(
            kind=family.kind,
            centres=centres,
            phases=np.zeros(size),
            lengthscale=family.lengthscale,
        )
    if family.tail_scale > 0.0:
        tails = features.tail_features(data.s, data.z, family.tail_scale)
        scales.append(np.sqrt(data.weights @ np.square(tails) / data.weights.sum()) + 1e-300)
        columns.append(tails / scales[-1])
        template = template._replace(tails=np.zeros(len(LOG_LADDER)), tail_scale=family.tail_scale)
    extra = np.concatenate(columns, axis=1) if columns else np.zeros((n, 0))
    extra_scale = np.concatenate(scales) if scales else np.zeros(0)
    return Basis(family, template, base, extra, extra_scale, projection)


def _nystroem(gram):
    """K^(-1/2) on the eigenvectors that carry more than 1e-11 of the largest eigenvalue."""
    eigenvalues, vectors = np.linalg.eigh(gram)
    kept = eigenvalues > 1e-11 * eigenvalues[-1]
    return vectors[:, kept] / np.sqrt(eigenvalues[kept])


def _evaluate(data: Data, shared: Shared, basis: Basis) -> Candidate | None:
    """Held-out error of a family along a path of ridges; None if no ridge gives a solution."""
    train, test = ~data.held_out, data.held_out
    base, extra = basis.base, basis.extra
    gram, test_gram = (
        _join(g[:base, :base], shared.columns[part, :base], extra[part], data.weights[part])
        for g, part in ((shared.train, train), (shared.test, test))
    )
    moment, test_moment = (
        np.concatenate([shared.columns[part, :base], extra[part]], axis=1).T
        @ (data.weights[part] * data.y[part])
        for part in (train, test)
    )
    test_columns = np.concatenate([shared.columns[test, :base], extra[test]], axis=1)
    free = features.quadratic_size(data.s.shape[1])
    weight, test_weights = data.weights[train].sum(), data.weights[test]
    best, worsenings = None, 0
    for ridge in RIDGES if len(moment) > free else (1e-9,):
        try:
            coefficients = _solve(gram, moment, free, ridge, weight)
        except np.linalg.LinAlgError:
            continue
        residual = data.y[test] - test_columns @ coefficients
        square = np.square(residual) * test_weights
        error = np.minimum(square, np.quantile(square, 0.95)).sum() / test_weights.sum()
        if best is None or error < best[0]:
            best, worsenings = (error, ridge, residual), 0
        else:
            worsenings += 1
            if worsenings == 2:
                break
    if best is None:
        return None
    error, ridge, residual = best
    return Candidate(basis, ridge, error, residual, gram + test_gram, moment + test_moment)


def _join(gram, columns, extra, weights):
    if not extra.shape[1]:
        return gram
    cross = _gram(columns, extra, weights)
    return np.block([[gram, cross], [cross.T, _gram(extra, extra, weights)]])


def _solve(gram, moment, free, ridge, weight):
    """Ridge on all but the first ``free`` columns, which get hardly any; scaled with the sum of the weights."""
    penalised = gram.copy()
    diagonal = np.einsum("ii->i", penalised)
    diagonal[:free] += QUADRATIC_RIDGE * weight
    diagonal[free:] += ridge * weight
    factor = linalg.cho_factor(penalised, lower=True, overwrite_a=True, check_finite=False)
    return linalg.cho_solve(factor, moment, check_finite=False)


def _solve_stubbornly(gram, moment, free, ridge, weight):
    while True:
        try:
            return _solve(gram, moment, free, ridge, weight)
        except np.linalg.LinAlgError:
            ridge = max(30.0 * ridge, 1e-12)
            if ridge > 1e6:
                raise


def _finish(data, shared, best: Candidate, quadratic: Candidate, relative) -> Fit:
    d = data.s.shape[1]
    free, weight = features.quadratic_size(d), data.weights.sum()
    scale = shared.scale
    coefficients = _solve_stubbornly(best.gram, best.moment, free, best.ridge, weight)
    plain = _solve_stubbornly(quadratic.gram, quadratic.moment, free, 1e-9, weight)
    surrogate = unpack(best.basis, coefficients, scale[: best.basis.base], data.offset)
    y, weights = data.y[data.held_out], data.weights[data.held_out]
    near_top = y > data.reference - 1.0 - 0.25 * d
    top_error, residual_sd = np.inf, 1.0
    if near_top.sum() > 10:
        square = np.square(best.residual[near_top])
        top_error = float(np.sqrt(np.minimum(square, np.quantile(square, 0.97)).mean()))
    if (weights > 0.4).sum() > 10:
        residual_sd = 1.48 * float(np.median(np.abs(best.residual[weights > 0.4])))
    return Fit(
        surrogate=surrogate,
        family=best.basis.family.name,
        error=float(np.sqrt(best.error)),
        top_error=top_error,
        residual_sd=residual_sd,
        relative_error=relative,
        ridge=best.ridge,
        quadratic_error=float(np.sqrt(quadratic.error)),
        curvature=features.unpack_quadratic(plain / scale[:free], d)[2],
        whiten_factor=data.whiten_factor,
        n_points=len(data.y),
    )


def unpack(basis: Basis, coefficients, scale, offset: float) -> Surrogate:
    """The surrogate with these coefficients of the basis' columns."""
    template, d = basis.template, len(basis.template.centre)
    free, base = features.quadratic_size(d), basis.base
    shared, extra = coefficients[:base] / scale, coefficients[base:] / basis.extra_scale
    constant, linear, quadratic = features.unpack_quadratic(shared[:free], d)
    surrogate = template._replace(
        constant=constant + offset,
        linear=linear,
        quadratic=quadratic,
        monomials=shared[free:].copy(),
    )
    if surrogate.kind == FOURIER:
        size = len(surrogate.centres)
        surrogate = surrogate._replace(weights=extra[:size].copy())
        extra = extra[size:]
    elif basis.projection is not None:
        size = basis.projection.shape[1]
        surrogate = surrogate._replace(weights=basis.projection @ extra[:size])
        extra = extra[size:]
    if len(surrogate.tails):
        logs = len(LOG_LADDER)
        _, tail_linear, tail_quadratic = features.unpack_quadratic(
            np.concatenate([[0.0], extra[logs:]]), d
        )
        surrogate = surrogate._replace(
            tails=extra[:logs].copy(), tail_linear=tail_linear, tail_quadratic=tail_quadratic
        )
    return surrogate
