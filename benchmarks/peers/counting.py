"""A log density that counts its evaluations and refuses one more than the budget, whoever asks."""

import math
import time
from collections.abc import Callable

import numpy as np


class StoppedError(Exception):
    """What ends a run from inside the log density."""


class BudgetSpentError(StoppedError):
    """One more evaluation than there is budget for."""


class TimeSpentError(StoppedError):
    """A cell's processor time is used up."""


class Counted:
    """Log density of a vector, NaN and +inf told as -inf, as a user's own function would.

    Parameters
    ----------
    log_density : callable
        From an array of shape (d,) to a float.
    limit : int
        The evaluation after so many raises :class:`BudgetSpentError`, and is not made.
    deadline : float, default infinity
        Value of ``time.process_time()`` after which :class:`TimeSpentError` is raised.

    Attributes
    ----------
    evaluations : int
        Made so far, each point of a batch for itself.
    """

    def __init__(
        self, log_density: Callable[[np.ndarray], float], limit: int, deadline: float = math.inf
    ):
        self.log_density, self.limit, self.deadline = log_density, limit, deadline
        self.evaluations = 0

    def __call__(self, x: np.ndarray) -> float:
        """The value at ``x``."""
        if self.evaluations >= self.limit:
            raise BudgetSpentError(f"{self.limit} evaluations")
        self.check_time()
        self.evaluations += 1
        value = float(self.log_density(np.ascontiguousarray(x, dtype=float)))
        return value if value < math.inf else -math.inf  # NaN is not less

    def check_time(self) -> None:
        """Raise :class:`TimeSpentError` if it is."""
        if time.process_time() > self.deadline:
            raise TimeSpentError

    @property
    def half_spent(self) -> bool:
        """Whether half of the budget is."""
        return 2 * self.evaluations >= self.limit
