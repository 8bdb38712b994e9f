"""Fit every factor of a log density to what its black box has returned so far.

All outputs of a factor share one design matrix, so that a factor in few inputs costs few evaluations however many
factors and unknowns there are: every evaluation of the log density is a design point for all of them.
"""

from typing import NamedTuple

import numpy as np
import scipy

from pymc_kameleon.numerics.checks import moderate
from pymc_kameleon.surrogates.factors.emulator import LOG, LOGIT, Emulator
from pymc_kameleon.surrogates.factors.layout import Layout
from pymc_kameleon.surrogates.factors.one_factor import Polynomial, fit_factor
from pymc_kameleon.surrogates.factors.splines import CAREFUL, FEWEST, INPUTS, MARGIN, assemble, columns

# Points that one factor is fitted to. ORDER: outputs so many times as far from the better half's middle as that half is
# are not predictions: where a simulator that fails returned 1e10, 4 effective draws per 1000 with them, 600 without
MOST, ORDER = 1500, 1e3
GOOD = 1e-3  # squared error of the log density, of all factors together: no reason to look further
POOR = 5e-2  # ... and to try a spline for a log likelihood, or logarithms for predictions, which have splines before
# From median to 1 % as so many times to the quartile: 3.4 of a normal, 4.8 of log X where X is exponential, 5.3 half a
# normal. At 4 tails are taken for long that are not: six patients at 3,000 evaluations 326 effective draws per 1000
# (mean of four seeds), at 4.5 463, without 455; twelve at 300 160, 240 and 95
LONG = 4.5
EPSILON = np.finfo(float).eps
WORSE = 1.3  # what a level tail may cost elsewhere: the held-out error leaves out the worst points, which are there


class Sample(NamedTuple):
    """What the black boxes have returned."""

    inputs: np.ndarray  # (n, n_w)
    outputs: np.ndarray  # (n, n_o)
    log_densities: np.ndarray  # (n,): the whole log density there


class Fit(NamedTuple):
    """A fitted emulator and how good it is."""

    emulator: Emulator
    errors: np.ndarray  # (K,): held-out errors, in units of the log density

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
    slopes: np.ndarray | None = None,
    bounds: np.ndarray | None = None,
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
    slopes : ndarray of shape (n_o,), optional
        dL / do of outputs in which the log density is linear, else 0. Default 1 where outputs are added up. A factor of
        such outputs alone is fitted as a log likelihood is: for what is high, and not rising where nobody was.
    bounds : ndarray of int, shape (n_o,), optional
        LOG for outputs without a log density below 0, LOGIT for those without one above 1, too: of those that were
        within at the better half of the points the logarithm or logit is emulated where that is better. A polynomial of
        cases, concentrations or probabilities leaves these bounds, and chains stand still there.
    nearest : bool
        The reference of each factor is what is nearest to ``here`` in its own inputs: for a climb.
    careful : bool
        Splines instead of polynomials wherever they are about as good.

    Raises
    ------
    numpy.linalg.LinAlgError
        If some factor cannot be fitted: too few points, or too degenerate.
    """
    slopes = layout.is_added.astype(float) if slopes is None else slopes
    usable = moderate(sample.outputs).all(axis=1) & moderate(sample.inputs).all(axis=1)
    if not usable.any():
        raise np.linalg.LinAlgError("no black box has returned a number that can be learned from")
    reference = None if reference is None else reference[moderate(reference).all(axis=1)]
    # of what was taken for positive, beyond 0
    if not moderate(here).all() or (reference is not None and not len(reference)):
        raise np.linalg.LinAlgError("a black box's inputs are no numbers where the chain is")
    sample = Sample(*(a[usable] for a in sample))
    if not nearest:  # of a neighbourhood the rest may be of another order
        sample = Sample(*(a[_alike(sample)] for a in sample))
    links = _links(sample, bounds)
    given = (sample, reference, here, precision, slopes, links, nearest, careful)
    factors = [_fit_one(rng, layout, k, *given) for k in range(layout.size)]
    return Fit(_assemble(layout, factors, slopes, not nearest), np.array([f.polynomial.error for f in factors]))


def _better_half(heights: np.ndarray) -> np.ndarray:
    """Rows that are as high as most of those that have a density."""
    finite = np.isfinite(heights)
    return heights >= np.median(heights[finite] if finite.any() else heights)


def _alike(sample: Sample) -> np.ndarray:
    """Rows whose outputs are of the better half's order: 1e10 says that a simulator has failed."""
    high = sample.outputs[_better_half(sample.log_densities)]
    middle = np.median(high, axis=0)
    spread = np.abs(high - middle).max(axis=0)
    return ((np.abs(sample.outputs - middle) <= ORDER * spread) | (spread == 0.0)).all(axis=1)


def _links(sample: Sample, bounds) -> np.ndarray:
    """The links of outputs that keep to their ``bounds`` where it matters: far away what is rare underflows."""
    if bounds is None:
        return np.zeros(sample.outputs.shape[1], np.int64)
    high = sample.outputs[_better_half(sample.log_densities)]
    shares = ((high >= 0.0) & (high <= 1.0)).all(axis=0) & ((high > 0.0) & (high < 1.0)).any(axis=0)
    positive = np.where((high > 0.0).all(axis=0) & (bounds > 0), LOG, 0)
    return np.where(shares & (bounds == LOGIT), LOGIT, positive)


def _linked(o: np.ndarray, links: np.ndarray) -> np.ndarray:
    """Outputs (n, m) by their links; what is at a bound or beyond counts as the nearest number within."""
    inside = np.maximum(o, np.where(o > 0.0, o, np.inf).min(axis=0))
    result, shares = np.log(inside, out=o.copy(), where=links == LOG), links == LOGIT
    result[:, shares] = scipy.special.logit(np.clip(o[:, shares], EPSILON, 1.0 - EPSILON))
    return result


def _rises(sample: Sample, o: np.ndarray, links: np.ndarray) -> np.ndarray:
    """What an output rises by with what is emulated of it, (m,): d exp(z) / dz is exp(z), that of a share p (1 - p).

    Of shares the root mean square over the better half: at the highest point one may be certain, and no error count.
    """
    rises, shares = np.where(links == LOG, o[np.argmax(sample.log_densities)], 1.0), links == LOGIT
    p = o[_better_half(sample.log_densities)][:, shares]
    rises[shares] = np.sqrt(np.square(p * (1.0 - p)).mean(axis=0))
    return rises


class Factor(NamedTuple):
    """One fitted factor of d inputs: what :class:`Emulator` has of it."""

    knots: np.ndarray  # (d, 2)
    centre: np.ndarray  # (d,)
    scale: np.ndarray  # (d,)
    whitening: np.ndarray  # (d, d)
    radius: float
    polynomial: Polynomial
    links: np.ndarray  # (outputs,)


def _fit_one(rng, layout, k, sample, reference, here, precision, slopes, links, nearest, careful) -> Factor:
    """Factor ``k`` in its inputs as they are; with levelled tails where they are long and that is far better."""
    columns = layout.inputs_of(k)
    w, o = sample.inputs[:, columns], sample.outputs[:, layout.outputs_of(k)]
    own_slopes = slopes[layout.outputs_of(k)]
    score = (o * own_slopes).sum(axis=1) if own_slopes.all() else None  # the log likelihood, up to a constant
    own = _reference(w, sample.log_densities if score is None else score, reference, columns, here, nearest)
    known = reference is not None and not nearest
    price, links = precision[layout.outputs_of(k)], np.where(own_slopes == 0.0, links[layout.outputs_of(k)], 0)

    def fitted(knots, links):
        return _fit_bent(
            rng, knots, bent(w, knots), bent(own, knots), bent(here[columns], knots), _linked(o, links),
            np.square(_rises(sample, o, links)) * price, layout.size, score=score, nearest=nearest, known=known,
            careful=careful,
        )._replace(links=links)  # fmt: skip

    def is_good(factor):
        return not known or factor.polynomial.error**2 < GOOD / layout.size

    straight = np.tile([-np.inf, np.inf], (w.shape[1], 1))
    found = fitted(straight, np.zeros_like(links))
    # Also of one that is good by its errors: a class of no counts costs next to nothing, and has no density below 0
    leaves = known and links.any() and _leaves(found, w, links)
    if leaves or (known and links.any() and found.polynomial.error**2 > POOR / layout.size):
        other = fitted(straight, links)
        better = other.polynomial.error < found.polynomial.error or (leaves and is_good(other))
        found = other if better else found
    knots = long_tails(own)
    if is_good(found) or not np.isfinite(knots).any():
        return found
    levelled = fitted(knots, found.links)
    return levelled if levelled.polynomial.error < WORSE * found.polynomial.error else found


def _leaves(factor: Factor, w, links) -> bool:
    """Whether the emulator leaves the outputs' bounds at some inputs ``w`` (n, d) at which they keep to them."""
    s = (w - factor.centre) / factor.scale
    inside = np.linalg.norm(s @ factor.whitening.T, axis=1) < factor.radius
    p = factor.polynomial
    values = columns(s[inside], p.variables, p.powers) @ p.coefficients
    return bool((values[:, links > 0] <= 0.0).any() or (values[:, links == LOGIT] >= 1.0).any())


def bent(w: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """B(w), shape (..., d): :func:`pymc_kameleon.surrogates.factors.emulator.bend`; ``w`` itself without knots."""
    return -np.logaddexp(-np.logaddexp(w, knots[:, 0]), -knots[:, 1])


def long_tails(own: np.ndarray) -> np.ndarray:
    """Knots (d, 2) at the quartiles of ``own`` (n, d), on the sides where its tail is as long as an exponential's."""
    low, first, middle, third, high = np.quantile(own, (0.01, 0.25, 0.5, 0.75, 0.99), axis=0)
    return np.column_stack(
        [
            np.where(middle - low > LONG * (middle - first), first, -np.inf),
            np.where(high - middle > LONG * (third - middle), third, np.inf),
        ]
    )


def heaviest(weights: np.ndarray, most: int = MOST) -> np.ndarray:
    """Rows of those that weigh, in order: the heaviest ``most``, and of equals the latest."""
    latest = np.flatnonzero(weights > 1e-9)[::-1]
    return np.sort(latest[np.argsort(-weights[latest], kind="stable")[:most]])


def _fit_bent(rng, knots, w, own, here, o, precision, n_factors, *, score, nearest, known, careful) -> Factor:
    """One factor, whose inputs are the bent ``w``, ``own`` and ``here``; ``score`` if it is a log likelihood."""
    centre, scale, whiten = _coordinates(own)
    d = len(centre)
    s = (w - centre) / scale
    square = np.square(s @ whiten.T).sum(axis=1)
    if score is not None:
        typical = np.square((own - centre) / scale @ whiten.T).sum(axis=1)
        depth = _depth(score, square, np.quantile(typical, 0.9) if known else None)
        weights = 1.0 / ((0.3 / np.sqrt(n_factors)) ** 2 + (0.15 * depth) ** 2)
        weights /= 1.0 + np.square(np.maximum(0.0, square / d - 9.0)) / 25.0
    elif nearest:
        weights = 1.0 / (1.0 + np.square(np.maximum(0.0, square / d - 2.0)))
    else:  # long tails, which the chain will see
        weights = 1.0 / (1.0 + np.maximum(0.0, square / d - 4.0))
    weights /= weights.max()
    chosen = heaviest(weights)
    tried = not nearest and d <= INPUTS and len(w) >= FEWEST
    polynomial = fit_factor(
        rng, s[chosen], o[chosen], weights[chosen], precision, GOOD / n_factors,
        (s @ whiten.T)[chosen] if tried else None,
        0.0 if careful else (POOR if score is not None else GOOD) / n_factors, CAREFUL if careful else MARGIN,
    )  # fmt: skip
    own_square = float(np.square(whiten @ ((here - centre) / scale)).sum())
    seen = np.sort(np.append(square[weights > 0.02], own_square))[::-1]
    farthest = seen[min(len(seen) // 100, len(seen) - 1)]
    reach = 1.4 if polynomial.bends else 2.0  # of the squared radius of trust in the points'
    if known and polynomial.error**2 < 1e-8 / n_factors:  # rounding: it is that polynomial
        reach = 1e4  # a wall in the tails would hold chains where the emulator is right
    radius = float(np.sqrt(max(reach * farthest, 1.3 * own_square) + 1.0))
    return Factor(knots, centre, scale, whiten, radius, polynomial, np.zeros(o.shape[1], np.int64))


def _reference(w, score, reference, columns_k, here, nearest):
    """Where a factor's emulator is wanted, in its own inputs."""
    if nearest:
        d = w.shape[1]
        with np.errstate(over="ignore"):  # all points have one value of an input, and the chain another: infinite
            distance = np.square((w - here[columns_k]) / (w.std(axis=0) + 1e-300)).sum(axis=1)
        return w[np.argsort(distance, kind="stable")[: max((d + 1) * (d + 2), 20)]]
    if reference is not None:
        return reference[:, columns_k]
    return w[_better_half(score)]


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


def _assemble(layout, factors, slopes, straight):
    fitted = [f.polynomial for f in factors]
    counts = np.array([len(p.variables) for p in fitted])
    sizes = np.array([p.coefficients.size for p in fitted])
    whitening = np.zeros((layout.size, layout.widest, layout.widest))
    for k, f in enumerate(factors):
        whitening[k, : len(f.centre), : len(f.centre)] = f.whitening
    return Emulator(
        inputs=layout.inputs,
        outputs=layout.outputs,
        centre=np.concatenate([f.centre for f in factors]),
        scale=np.concatenate([f.scale for f in factors]),
        knots=np.concatenate([f.knots for f in factors]),
        whitening=whitening,
        radius=np.array([f.radius for f in factors]),
        sign=np.array([_sign(slopes[layout.outputs_of(k)]) for k in range(layout.size)]),
        first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        variables=np.ascontiguousarray(np.concatenate([p.variables for p in fitted])),
        powers=np.ascontiguousarray(np.concatenate([p.powers for p in fitted])),
        coefficients=np.concatenate([p.coefficients.ravel() for p in fitted]),
        start=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        splines=assemble([p.spline for p in fitted], layout.widest),
        links=np.concatenate([f.links for f in factors]),
        straight=straight,
    )


def _sign(slopes):
    """That of all of them; 0 where they have none in common."""
    signs = np.sign(slopes)
    return float(signs[0]) if (signs == signs[0]).all() else 0.0
