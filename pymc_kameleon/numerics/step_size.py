"""Scales and step sizes that approach a target acceptance probability."""

from pymc_kameleon.numerics.compiled import njit

OPTIMAL_SCALE = 2.38  # times d^-1/2: Roberts, Gelman & Gilks (1997)


def robbins_monro(log_scale: float, accept_prob: float, target_accept: float, rate: float) -> float:
    """One Robbins-Monro step of a log scale towards a target acceptance probability.

    log s <- log s + rate (alpha - alpha*)  (Andrieu & Thoms, 2008, eq. 19). ``accept_prob`` is the acceptance
    probability, not the 0/1 indicator: the same mean with less variance.
    """
    return log_scale + rate * (accept_prob - target_accept)


@njit(cache=True)
def varied(step_size: float, u: float) -> float:
    """A leapfrog step of .2 to 1.2 times ``step_size``, mostly near it, by ``u`` uniform on (0, 1).

    ``u`` is drawn independently of the point, on which reversibility hangs. Where f bends more than where the step size
    was tuned, at a banana's ends, in a funnel's neck, the chain would stick or never enter; and with nothing evaluated
    there, nothing tells.
    """
    return step_size * (1.2 - u**3)
