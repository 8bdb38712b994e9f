"""Which inputs and outputs belong to which factor: all factors' are kept in one vector each."""

from functools import cached_property

import numpy as np


class Layout:
    """K factors in a row.

    Parameters
    ----------
    inputs, outputs : ndarray of int, shape (K + 1,)
        Factor k has the inputs ``inputs[k]`` to ``inputs[k + 1]``, and outputs likewise.
    added : ndarray of bool, shape (K,)
        Whether a factor's outputs are log likelihoods that are added up, or predictions.
    """

    def __init__(self, inputs: np.ndarray, outputs: np.ndarray, added: np.ndarray):
        self.inputs, self.outputs, self.added = inputs, outputs, added

    @property
    def size(self) -> int:
        """K."""
        return len(self.added)

    @cached_property
    def widest(self) -> int:
        """Inputs of the largest factor."""
        return int(np.diff(self.inputs).max())

    @cached_property
    def owner(self) -> np.ndarray:
        """Each output's factor, shape (n_o,)."""
        return np.repeat(np.arange(self.size), np.diff(self.outputs))

    @cached_property
    def is_added(self) -> np.ndarray:
        """Of each output."""
        return self.added[self.owner]

    @cached_property
    def columns(self) -> np.ndarray:
        """Each output's inputs, shape (n_o, widest), padded with the last one; what belongs there is 0."""
        first, last = self.inputs[self.owner], self.inputs[self.owner + 1] - 1
        return np.minimum(first[:, None] + np.arange(self.widest), last[:, None])

    def inputs_of(self, k: int) -> slice:
        """Where factor k's inputs are."""
        return slice(int(self.inputs[k]), int(self.inputs[k + 1]))

    def outputs_of(self, k: int) -> slice:
        """Where factor k's outputs are."""
        return slice(int(self.outputs[k]), int(self.outputs[k + 1]))
