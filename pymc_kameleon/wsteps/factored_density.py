"""The log density of a model that is cut at its black boxes, as :class:`LogDensity` is of one that is not."""

import numpy as np

from pymc_kameleon import pseudo_marginal
from pymc_kameleon.log_density import LogDensity, compile_log_density
from pymc_kameleon.wsteps.black_boxes import Unsplittable
from pymc_kameleon.wsteps.split import Cut, Split, whole_graph


class FactoredDensity(LogDensity):
    """log p of the non-centred coordinates v, and what every black box has returned.

    It is compiled from the model's own graph. Between v and the point that PyMC sees, ``enter`` and ``update`` translate.

    Parameters
    ----------
    cut : Cut
    initial_point : dict of name to ndarray
    compile_kwargs : dict, optional

    Attributes
    ----------
    split : Split
    outputs : ndarray of shape (n_o,)
        Of the last evaluation.

    Raises
    ------
    Unsplittable
        If the log density is noisy, or the shape of a black box's output cannot be found.
    """

    def __init__(self, cut: Cut, initial_point, compile_kwargs=None):
        super().lay_out([v for v, *_ in cut.coordinates.layout], initial_point)
        self._compile_kwargs = compile_kwargs
        v, total, outputs = whole_graph(cut)
        if pseudo_marginal.noise_streams([total]):
            raise Unsplittable("the log density is noisy")
        self.suspects = pseudo_marginal.hidden_generators([total])
        self.noisy = self.split = False
        self._function = compile_log_density([v], [total, *outputs], compile_kwargs)
        self._function.trust_input = True
        self.parts_of = Split(cut, self._shapes(cut, initial_point), compile_kwargs)
        self._zero = np.zeros(self.dim)
        self.outputs = np.zeros(int(self.parts_of.layout.outputs[-1]))
        self._last = (np.full(self.dim, np.nan), np.full(self.dim, np.nan))
        self.forget_chain()

    def __call__(self, v):
        value, *outputs = self._function(v)
        self.outputs = np.concatenate([np.ravel(o) for o in outputs]).astype(float)
        return float(value)
