"""The columns of a family side by side, as they are fitted, and back: the surrogate that their coefficients make."""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.surrogates.values import features, known_scales, monomials, scales
from pymc_kameleon.surrogates.values.features import FOURIER, GAUSSIAN, LOG_LADDER, PAIRWISE, Surrogate
from pymc_kameleon.surrogates.values.least_squares import column_size, weighted_gram
from pymc_kameleon.surrogates.values.library import Basis, Data, Family, parts


class Shared(NamedTuple):
    """The columns that most families share, with their weighted Gram matrices over both parts of the data."""

    columns: np.ndarray  # (n, p), of unit weighted root mean square
    scale: np.ndarray  # (p,)
    variables: np.ndarray
    powers: np.ndarray
    train: np.ndarray  # (p, p)
    test: np.ndarray


def share_columns(data: Data, richer: bool, earlier: Surrogate | None = None) -> Shared:
    """Quadratic columns, then the richest set of monomials with at most min(0.35 n, 700) terms.

    Where not even the quartic in pairs of variables has so few, beyond 16 dimensions, its most promising terms: those
    that mattered ``earlier`` and those that :mod:`.monomials` finds.
    """
    columns = features.quadratic_features(data.u)
    variables = powers = monomials.NO_MONOMIALS
    if richer:
        variables, powers = monomials.choose(data, columns, earlier)
        columns = np.concatenate([columns, monomials.features(data.s, variables, powers)], axis=1)
    scale = column_size(columns, data.weights)
    columns = columns / scale
    grams = (weighted_gram(columns[part], columns[part], data.weights[part]) for part in parts(data))
    return Shared(columns, scale, variables, powers, *grams)


def build(rng: np.random.Generator, data: Data, shared: Shared, family: Family) -> Basis:
    """Columns of ``family`` beside the shared ones, if it is not one of scales."""
    n, d = data.s.shape
    template, base = beside(data, shared, family)
    columns, scales, projection = [np.zeros((n, 0))], [np.zeros(0)], None
    size = int(min(300, 0.4 * n))  # centres at most: what a value costs
    if family.kind == FOURIER:
        frequencies, phases = features.sparse_frequencies(rng, size, d)
        columns.append(np.cos(data.s @ frequencies.T + phases) * np.sqrt(2.0 / size))
        scales.append(np.full(size, np.sqrt(0.5 * size)))
        template = template._replace(kind=FOURIER, centres=frequencies, phases=phases)
    elif family.kind in (GAUSSIAN, PAIRWISE):
        kernel, points = (
            (features.gaussian_kernel, data.z) if family.kind == GAUSSIAN else (features.pairwise_kernel, data.s)
        )
        chances = np.minimum(data.weights, np.median(data.weights))
        centres = np.ascontiguousarray(points[rng.choice(n, size=size, replace=False, p=chances / chances.sum())])
        projection = _nystroem(kernel(centres, centres, family.lengthscale))
        columns.append(kernel(points, centres, family.lengthscale) @ projection)
        scales.append(np.ones(projection.shape[1]))
        template = template._replace(
            kind=family.kind, centres=centres, phases=np.zeros(size), lengthscale=family.lengthscale
        )
    if family.tail_scale > 0.0:
        tails = features.tail_features(data.s, data.z, family.tail_scale)
        scales.append(column_size(tails, data.weights))
        columns.append(tails / scales[-1])
        template = template._replace(tails=np.zeros(len(LOG_LADDER)), tail_scale=family.tail_scale)
    return Basis(family, template, base, np.concatenate(columns, axis=1), np.concatenate(scales), projection)


def beside(data: Data, shared: Shared, family: Family) -> tuple[Surrogate, int]:
    """What of the shared columns a family has: in a surrogate, and how many."""
    quadratic = features.quadratic_size(data.s.shape[1])
    if not family.monomials:
        return data.template, quadratic
    template = data.template._replace(variables=shared.variables, powers=shared.powers)
    return template, quadratic + len(shared.variables)


def _nystroem(gram):
    """K^(-1/2) on the eigenvectors that carry more than 1e-11 of the largest eigenvalue."""
    eigenvalues, vectors = np.linalg.eigh(gram)
    kept = eigenvalues > 1e-11 * eigenvalues[-1]
    return vectors[:, kept] / np.sqrt(eigenvalues[kept])


def unpack(basis: Basis, coefficients, scale, offset: float) -> Surrogate:
    """The surrogate with these coefficients of the basis' columns."""
    template, d = basis.template, len(basis.template.centre)
    free, base = features.quadratic_size(d), basis.base
    shared, extra = coefficients[:base] / scale, coefficients[base:] / basis.extra_scale
    constant, linear, quadratic = features.unpack_quadratic(shared[:free], d)
    surrogate = template._replace(
        constant=constant + offset, linear=linear, quadratic=quadratic, monomials=shared[free:].copy()
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
        _, tail_linear, tail_quadratic = features.unpack_quadratic(np.concatenate([[0.0], extra[logs:]]), d)
        surrogate = surrogate._replace(
            tails=extra[:logs].copy(), tail_linear=tail_linear, tail_quadratic=tail_quadratic
        )
    if basis.family.scales:
        variables, rates = template.blocks.variables[template.known :], template.blocks.rates[template.known :]
        blocks = scales.in_z(scales.unpack(extra, variables, rates, d), basis.maps)
        surrogate = surrogate._replace(blocks=known_scales.beside(surrogate, blocks))
    return surrogate
