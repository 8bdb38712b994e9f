"""Fit every factor of a log density to what its black box has returned so far.

All outputs of a factor share one design matrix, so that a factor in few inputs costs few evaluations however many
factors and unknowns there are: every evaluation of the log density is a design point for all of them.
"""

from typing import NamedTuple

import numpy as np
import scipy

from pymc_kameleon.numerics.checks import moderate
from pymc_kameleon.surrogates.factors.emulator import Emulator
from pymc_kameleon.surrogates.factors.layout import Layout
from pymc_kameleon.surrogates.factors.one_factor import Polynomial, fit_factor
from pymc_kameleon.surrogates.factors.splines import CAREFUL, FEWEST, INPUTS, MARGIN, assemble

GOOD = 1e-3  # squared error of the log density, of all factors together: no reason to look further
POOR = 5e-2  # ... and a reason to try a spline for a log likelihood


class Sample(NamedTuple):
    """What the black boxes have returned."""

    inputs: np.ndarray  # (n, n_w)
    outputs: np.ndarray  # (n, n_o)
    log_densities: np.ndarray  # (n,): the whole log density there


class Fit(NamedTuple):
    """A fitted emulator and how good it is."""

    emulator: Emulator
    errors: np.ndarray  # (K,): held-out errors, in units of the log density
    degrees: tuple  # of every factor's polynomial: degree, variables in one monomial

    @property
    def error(self) -> float:
        """Of all factors together."""
        return float(np.sqrt(np.square(self.errors).sum()))

    @property
    def family(self) -> str:
        """What it is called among surrogates."""
        return "factors"

    @property
    def residual_sd(self) -> float:
        """What is to be expected out of sample: the errors are of inputs that were looked at."""
        return max(2.0 * self.error, 0.1)


def fit(
    rng: np.random.Generator,
    layout: Layout,
    sample: Sample,
    reference: np.ndarray | None,
    here: np.ndarray,
    precision: np.ndarray,
    *,
    nearest: bool = False,
    careful: bool = False,
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
    careful : bool
        Splines instead of polynomials wherever they are about as good.

    Raises
    ------
    numpy.linalg.LinAlgError
        If some factor cannot be fitted: too few points, or too degenerate.
    """
    usable = moderate(sample.outputs).all(axis=1) & moderate(sample.inputs).all(axis=1)
    if not usable.any():
        raise np.linalg.LinAlgError("no black box has returned a number that can be learned from")
    sample = Sample(*(a[usable] for a in sample))
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
            weights = 1.0 / (floor**2 + (0.15 * depth) ** 2)
            weights /= 1.0 + np.square(np.maximum(0.0, square / d - 9.0)) / 25.0
        elif nearest:
            weights = 1.0 / (1.0 + np.square(np.maximum(0.0, square / d - 2.0)))
        else:  # long tails, which the chain will see
            weights = 1.0 / (1.0 + np.maximum(0.0, square / d - 4.0))
        weights /= weights.max()
        chosen = np.flatnonzero(weights > 1e-9)
        if len(chosen) > 1500:  # the heaviest, and of equals the latest
            heaviest = np.argsort(-weights[chosen][::-1], kind="stable")[:1500]
            chosen = np.sort(chosen[heaviest])
        tried = added and not nearest and d <= INPUTS and len(w) >= FEWEST
        fitted.append(
            fit_factor(
                rng, s[chosen], o[chosen], weights[chosen],
                precision[layout.outputs_of(k)], GOOD / n_factors,
                (s @ whiten.T)[chosen] if tried else None,
                0.0 if careful else POOR / n_factors, CAREFUL if careful else MARGIN,
            )
        )  # fmt: skip
        own_square = float(np.square(whiten @ ((here[columns_k] - centre_k) / scale_k)).sum())
        seen = np.sort(np.append(square[weights > 0.02], own_square))[::-1]
        farthest = seen[min(len(seen) // 100, len(seen) - 1)]
        reach = 1.4 if fitted[-1].bends else 2.0  # of the squared radius of trust in the points'
        exact = fitted[-1].error ** 2 < 1e-8 / n_factors  # rounding: it is that polynomial
        if exact and reference is not None and not nearest:
            reach = 1e4  # a wall in the tails would hold chains where the emulator is right
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
        with np.errstate(over="ignore"):  # all points have one value of an input, and the chain another: infinite
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
    return centre, scale, scipy.linalg.inv(scipy.linalg.cholesky(correlation, lower=True))


def _depth(values, square, near):
    """How far each value of a log likelihood lies below a reference."""
    if near is not None and (square <= near).sum() > 10:
        level = np.quantile(values[square <= near], 0.2)
    else:
        level = np.quantile(values, 0.7)
    return np.maximum(0.0, level - values)


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
        splines=assemble([p.spline for p in fitted], layout.widest),
        straight=straight,
    )
