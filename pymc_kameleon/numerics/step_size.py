"""Scales and step sizes that approach a target acceptance probability."""

OPTIMAL_SCALE = 2.38  # times d^-1/2: Roberts, Gelman & Gilks (1997)


def robbins_monro(log_scale: float, accept_prob: float, target_accept: float, rate: float) -> float:
    """One Robbins-Monro step of a log scale towards a target acceptance probability.

    log s <- log s + rate (alpha - alpha*)  (Andrieu & Thoms, 2008, eq. 19). ``accept_prob`` is the acceptance
    probability, not the 0/1 indicator: the same mean with less variance.
    """
    return log_scale + rate * (accept_prob - target_accept)
