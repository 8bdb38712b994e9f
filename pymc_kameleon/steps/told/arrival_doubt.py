"""An arrival that ran out of evaluations: whether the walk after it has come to the typical set on its own.

The climb says that it is there only where its quadratic says so too. Where that one is never good (a ridge, a kink) it
hands the chain over without a word for it, most often in the typical set or near. So the warning waits: the log
densities of the walk decide when tuning ends.
"""

import numpy as np

from pymc_kameleon.numerics import history
from pymc_kameleon.samplers.life import Doubt


def settled(doubt: Doubt) -> bool:
    """Whether the walk moves freely in log density, and does not rise any more.

    A chain that climbs has unlike halves, and so few effective draws, one that is stuck has few or none.
    """
    heights = history.window(doubt.heights, 0.5)[:, 0]
    half = len(heights) // 2
    if half < 50 or not np.ptp(heights) > 0.0:
        return False
    import arviz as az  # slow to import

    halves = heights[-2 * half :].reshape(2, half)
    return bool(az.ess(halves) > 20.0)  # R-hat of the walk's quarters is then below 1.1
