"""Regress the log density on features at every point ever evaluated, accepted or rejected.

Weighted ridge regression on one of a small library of feature families, chosen with its lengthscale and its ridge by
squared error on held-out points. With y_i the log density at x_i and y_ref a low quantile of the chain's own,

    w_i = 1 / {s0^2 + (c max(0, y_ref - y_i))^2}:

an error of c = 15 % of the depth is as good as one of s0 at the top, because far out only the sign of the slope
matters. s0 is the typical held-out residual of the previous fit, which is how the weights adapt to noise.

A polynomial comes before any kernel, and the quadratic is hardly penalised, because of what they do
where there is no data: at equal held-out error a polynomial extrapolates a hundred times better.

The quadratic's columns are in coordinates whitened by the weighted points, where their Gram matrix is
well conditioned whatever the target's axes; its small ridge, and what squaring has lost, are taken
back by iterative refinement with the residuals themselves (Golub & Van Loan, section 5.3.8). All other
columns stay in the axes of the model, where curved targets have few monomials.

Differs from the kernel-smoothing and score-matching surrogates of the literature: those see the
chain's states only, and need them to be draws from the target. Values need not be: a rejected
proposal says as much about the log density as an accepted one.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.numerics import checks
from pymc_kameleon.surrogates.values import features, known_scales, scale_basis
from pymc_kameleon.surrogates.values.columns import Shared, beside, build, share_columns, unpack
from pymc_kameleon.surrogates.values.features import Surrogate
from pymc_kameleon.surrogates.values.known_scales import KnownScale
from pymc_kameleon.surrogates.values.least_squares import (
    REFINEMENTS,
    RIDGES,
    Problem,
    solve,
    solve_stubbornly,
    weighted_gram,
)
from pymc_kameleon.surrogates.values.library import GOOD_ENOUGH, LIBRARY, Basis, Data, Family, parts
from pymc_kameleon.surrogates.values.preparation import prepare, without_noise

RELATIVE_ERROR = 0.15  # c
FLOOR = (0.3, 2.0)  # range of s0
NEGLIGIBLE = 0.1  # of the error, the weighted root mean square of monomials that are left out together
EXACT = 1e-6  # weighted held-out squared error of what a family has in it, with its tails
# Multiply-adds of one search's candidates. With what is beside them some 36 s of a core at d = 20, 220 at d = 50,
# where looking for scales, which is not among them, takes half (benchmarks/results/cost.md)
MAX_WORK = 4e10


class Fit(NamedTuple):
    """A fitted surrogate and what is known about its quality."""

    surrogate: Surrogate
    family: str
    error: float  # root of the weighted, clipped held-out squared error of the chosen family, without power tails
    top_error: float  # the same, unweighted, over held-out points near the top: what ``relative_error`` is chosen by
    residual_sd: float  # robust sd of the held-out residual at the points of high weight: the s0 of the next fit
    relative_error: float  # c
    ridge: float
    quadratic_error: float  # ``error`` of the plain quadratic
    # (d, d): second derivative, in z, of the plain quadratic fitted with the same weights
    curvature: np.ndarray
    # (d, d): s = L z: lower triangular factor of the chain's correlation, shrunk towards the points'
    whiten_factor: np.ndarray
    n_points: int


class Candidate(NamedTuple):
    """A family with the ridge that suits it."""

    basis: Basis
    ridge: float
    error: float  # weighted clipped mean square on held-out points
    residual: np.ndarray  # of the held-out points
    columns: np.ndarray  # (n, p)
    gram: np.ndarray  # over all points


def fit(
    rng: np.random.Generator,
    positions: np.ndarray,
    log_densities: np.ndarray,
    chain: np.ndarray,
    chain_log_densities: np.ndarray,
    previous: Fit | None = None,
    full: bool = True,
    library: tuple[Family, ...] = LIBRARY,
    known: tuple[KnownScale, ...] = (),
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
        Search the whole library, and c; otherwise the quadratic, the polynomial and the previous winner, of scales
        both families.
    known : tuple of KnownScale
        What of the log density need not be learned: the families are fitted to the rest.

    Raises
    ------
    numpy.linalg.LinAlgError
        If there are too few distinct points to fit even a quadratic.
    """
    relative = RELATIVE_ERROR if previous is None or full else previous.relative_error
    floor = FLOOR[0] if previous is None else min(max(previous.residual_sd, FLOOR[0]), FLOOR[1])
    finite = checks.moderate(log_densities)
    if not checks.moderate(chain_log_densities).all():
        raise np.linalg.LinAlgError("the chain's own log densities are no numbers to learn from")
    if finite.sum() < features.quadratic_size(positions.shape[1]):
        raise np.linalg.LinAlgError(f"{finite.sum()} finite values are too few for a quadratic")
    if not finite.all():
        positions, log_densities = positions[finite], log_densities[finite]
    latest = most_points(positions.shape[1])
    positions, log_densities = positions[-latest:], log_densities[-latest:]
    depths = without_noise(positions, log_densities, previous)
    names = [family.name for family in library]
    if previous is not None and not full:
        names = ["quadratic", "polynomial", previous.family]
        if previous.surrogate.blocks.rates.size > previous.surrogate.known:  # with and without monomials
            names += [family.name for family in library if family.scales]

    def search(names, relative):
        data = prepare(rng, positions, log_densities, depths, chain, chain_log_densities, floor, relative, known)
        families = [family for family in library if family.name in names]
        return _search(rng, data, families, relative, None if previous is None else previous.surrogate)

    best = search(names, relative)
    if full and best.top_error**2 > GOOD_ENOUGH:
        # a larger c lets go of the tails: it must be clearly better at the top
        for other in (0.05, 0.4):
            try:
                rival = search([best.family], other)
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


def _search(rng, data: Data, families, relative, earlier: Surrogate | None) -> Fit:
    """The family, lengthscale and ridge with the least priced held-out error, refitted on all points."""
    n, d = data.s.shape
    quadratic_size = features.quadratic_size(d)
    if n < quadratic_size or not data.held_out.any() or data.held_out.all():
        raise np.linalg.LinAlgError(f"{n} values near the top are too few for a quadratic")
    enough = n > 1.2 * quadratic_size
    shared = share_columns(data, enough and any(f.monomials for f in families), earlier)
    # The quadratic is always fitted: its curvature sets the metric of the dynamics
    quadratic = _evaluate(data, shared, build(rng, data, shared, LIBRARY[0]))
    if quadratic is None:
        raise np.linalg.LinAlgError("the evaluated points do not determine a quadratic")
    best, work = quadratic, 0.0
    # the first fit of a chain has just so many points
    if not enough or (quadratic.error < GOOD_ENOUGH and n >= int(1.5 * quadratic_size)):
        families = ()
    for basis in _bases(rng, data, shared, families):
        k = basis.extra.shape[1]
        p = basis.base + k
        cost = n * k * (basis.base + 0.5 * k) + 3.0 * p**3 / 3.0
        if work + cost > MAX_WORK:
            continue
        work += cost
        candidate = _evaluate(data, shared, basis)
        if candidate is None:
            continue
        if candidate.error * basis.family.price < best.error * best.basis.family.price:
            best = candidate
        if candidate.error < GOOD_ENOUGH and n > 1.5 * p:
            break
    return _finish(data, shared, best, quadratic, relative)


def _bases(rng, data, shared, families):
    """The columns of each family beside the quadratic, made when they are asked for."""
    found = None
    for family in families:
        # beside the quadratic itself, and where there are not too many monomials
        if family.name == "quadratic" or (family.monomials and not len(shared.variables)):
            continue
        if family.scales:
            found = scale_basis.find(data, shared.columns) if found is None else found
            yield from scale_basis.build(data, family, *beside(data, shared, family), found)
        else:
            yield build(rng, data, shared, family)


def _evaluate(data: Data, shared: Shared, basis: Basis) -> Candidate | None:
    """Held-out error of a family along a path of ridges; None if no ridge gives a solution."""
    train, test = parts(data)
    base, extra = basis.base, basis.extra
    columns = shared.columns[:, :base]
    if extra.shape[1]:
        columns = np.concatenate([columns, extra], axis=1)
    gram, test_gram = (
        _join(g[:base, :base], shared.columns[part, :base], extra[part], data.weights[part])
        for g, part in ((shared.train, train), (shared.test, test))
    )
    free = features.quadratic_size(data.s.shape[1])
    problem = Problem(columns[train], data.y[train], data.weights[train], free, gram)
    alone = columns.shape[1] == free
    ridges: tuple[float, ...] = (0.0,) if alone else RIDGES
    if basis.family.scales and base == free:  # what may hold exactly, without a ridge first
        ridges = (0.0, *RIDGES)
    test_weights = data.weights[test]
    best, worsened = None, False
    for ridge in ridges:
        try:
            coefficients = solve(problem, ridge, REFINEMENTS if alone else 0)
            if basis.family.scales:
                coefficients = scale_basis.made_concave(problem, basis, coefficients, ridge)
        except np.linalg.LinAlgError:
            continue
        residual = data.y[test] - columns[test] @ coefficients
        square = np.square(residual) * test_weights
        error = np.minimum(square, np.quantile(square, 0.95)).sum() / test_weights.sum()
        if best is None or error < best.error:
            best, worsened = Candidate(basis, ridge, error, residual, columns, gram + test_gram), False
        elif worsened:  # twice in a row
            break
        else:
            worsened = True
    return best


def _join(gram, columns, extra, weights):
    if not extra.shape[1]:
        return gram
    cross = weighted_gram(columns, extra, weights)
    return np.block([[gram, cross], [cross.T, weighted_gram(extra, extra, weights)]])


def _finish(data, shared, best: Candidate, quadratic: Candidate, relative) -> Fit:
    d = data.s.shape[1]
    free, scale = features.quadratic_size(d), shared.scale
    problem, plain = (Problem(c.columns, data.y, data.weights, free, c.gram) for c in (best, quadratic))
    coefficients, plain = _solved(problem, best.basis, best.ridge), solve_stubbornly(plain, quadratic.ridge)
    basis, kept = _without_negligible(problem, best, coefficients)
    if not kept.all():
        problem = problem._replace(columns=best.columns[:, kept], gram=best.gram[np.ix_(kept, kept)])
        coefficients = _solved(problem, basis, best.ridge)
    to_u = data.template.frame @ data.whiten_factor
    curvature = features.unpack_quadratic(plain / scale[:free], d)[2]
    curvature = to_u.T @ curvature @ to_u
    if data.template.known:
        curvature = curvature + known_scales.curvature(data.template, data.whiten_factor)
    surrogate = unpack(basis, coefficients, scale[: best.basis.base][kept[: best.basis.base]], data.offset)
    # a scale's blocks have the tails that a scale has, but monomials beside them, and what is fitted exactly its own
    own = best.basis.family.scales and not len(surrogate.monomials)
    if not (own or features.is_quadratic(known_scales.left_out(surrogate)) or best.error < EXACT):
        reach, slope = data.tails
        surrogate = surrogate._replace(reach=reach, slope=slope, top=float(data.y.max()) + data.offset)
    y, weights = data.heights[data.held_out], data.weights[data.held_out]
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
        curvature=curvature,
        whiten_factor=data.whiten_factor,
        n_points=len(data.y),
    )


def _solved(problem: Problem, basis: Basis, ridge: float) -> np.ndarray:
    coefficients = solve_stubbornly(problem, ridge)
    return scale_basis.made_concave(problem, basis, coefficients, ridge) if basis.family.scales else coefficients


def _without_negligible(problem: Problem, best: Candidate, coefficients) -> tuple[Basis, np.ndarray]:
    """The basis without monomials that are nothing beside the error, and which columns are left.

    Every one costs time at every gradient, and of a log density that is a polynomial only its own are left.
    """
    basis, free = best.basis, problem.free
    of = slice(free, basis.base)
    order = free + np.argsort(np.abs(coefficients[of]), kind="stable")
    products = coefficients[order, None] * problem.gram[np.ix_(order, order)] * coefficients[order]
    together = np.diagonal(products.cumsum(axis=0).cumsum(axis=1)) / problem.weights.sum()
    kept = np.ones(len(coefficients), dtype=bool)
    kept[order[np.logical_and.accumulate(together < NEGLIGIBLE**2 * max(best.error, 1e-2 * GOOD_ENOUGH))]] = False
    template = basis.template._replace(
        variables=basis.template.variables[kept[of]], powers=basis.template.powers[kept[of]]
    )
    return basis._replace(template=template, base=int(kept[: basis.base].sum())), kept
