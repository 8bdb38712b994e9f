"""What a surrogate is fitted to: the points in coordinates from the chain, with weights, a fifth of them held out."""

import numpy as np
import scipy

from pymc_kameleon.numerics import checks
from pymc_kameleon.surrogates.values import features, flattened, known_scales, power_tails
from pymc_kameleon.surrogates.values.least_squares import root, whiten
from pymc_kameleon.surrogates.values.library import Data


def without_noise(positions, log_densities, previous):
    """Values to take the depth in the weights from: f of the ``previous`` fit where it agrees with y, y elsewhere.

    Weights that follow the noise in y bias the fit (upwards, and more so further out).
    """
    if previous is None:
        return log_densities
    smooth = flattened.values(previous.surrogate, np.ascontiguousarray(positions))
    agree = np.abs(smooth - log_densities) < 4.0 * previous.residual_sd
    return np.where(agree, smooth, log_densities)


def prepare(
    rng: np.random.Generator, positions, log_densities, depths, chain, chain_log_densities,
    floor, relative, known=(),
) -> Data:  # fmt: skip
    """Coordinates from the chain, relative-error weights, and the random held-out fifth."""
    centre = np.median(chain, axis=0)
    scale = chain.std(axis=0) + 1e-9 * np.abs(centre) + 1e-300
    reference = np.quantile(chain_log_densities, 0.3)
    offset = float(np.median(chain_log_densities))
    with np.errstate(over="ignore"):  # 1e200 below the top: a weight of zero
        weights = 1.0 / (floor**2 + np.square(relative * np.maximum(0.0, reference - depths)))
        s, y = (positions - centre) / scale, log_densities - offset
    weights /= weights.max()
    near = np.abs(s).max(axis=1) < 1e30  # squares of fourth powers are still numbers
    kept = np.flatnonzero((weights > 1e-10) & near & checks.moderate(y))
    if not len(kept):
        raise np.linalg.LinAlgError("no value near the top is near the chain")
    held_out = rng.random(len(kept)) < 0.2
    order = np.argsort(held_out, kind="stable")  # so that both parts are slices
    kept, held_out = kept[order], held_out[order]
    s, y, weights = s[kept], y[kept], weights[kept]
    origin, spread = whiten(s, weights)
    if not np.linalg.norm(spread, axis=1).min() > 1e-100:
        raise np.linalg.LinAlgError("the values near the top are all at one value of a coordinate")
    frame = _inverse(spread)
    states = (chain - centre) / scale
    factor = _chain_factor(states, spread)
    template = features.blank(centre, scale, _inverse(factor))
    heights = y
    if known:
        blocks, linear = known_scales.in_surrogate(known, centre, scale, factor)
        template = template._replace(blocks=blocks, known=len(known), known_linear=linear)
        y = heights - flattened.values_and_slopes(template, np.ascontiguousarray(s))[0]
    return Data(
        s=s,
        u=(s - origin) @ frame.T,
        z=s @ template.whiten.T,
        y=y,
        heights=heights,
        weights=weights,
        held_out=held_out,
        offset=offset,
        reference=float(reference) - offset,
        template=template._replace(origin=origin, frame=frame),
        whiten_factor=factor,
        tails=power_tails.choose(states @ template.whiten.T),
    )


def _chain_factor(s, spread):
    """Lower triangular L: L L' is the covariance of ``s`` (m, d), shrunk towards ``spread`` ``spread``'.

    Shrunk towards the diagonal it would stop at axes of 1 : 30, and be another matrix in other units of rotated axes.
    """
    shrink = 0.001
    own = np.sqrt((1.0 - shrink) / len(s)) * (s - s.mean(axis=0))
    return root(np.concatenate([own, np.sqrt(shrink) * spread.T]))


def _inverse(factor):
    return np.ascontiguousarray(scipy.linalg.solve_triangular(factor, np.eye(len(factor)), lower=True))
