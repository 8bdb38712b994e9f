"""What makes one model twice: black boxes and centred groups, or PyTensor graphs and groups non-centred by hand."""

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph import Apply, Op


class BlackBox(Op):
    """A function of arrays without gradient, that counts its calls: what a user's Op around a solver is."""

    def __init__(self, kit, function, kind):
        self.kit, self.function, self.kind = kit, function, kind

    def make_node(self, *inputs):
        return Apply(self, [pt.as_tensor(i) for i in inputs], [self.kind()])

    def perform(self, node, inputs, outputs):
        self.kit.calls += 1
        with np.errstate(all="ignore"):
            outputs[0][0] = np.asarray(self.function(*inputs))


class Kit:
    """Black boxes, as a user has them, or graphs with gradients, for the references; ``calls`` counts the boxes' calls.

    ``centred``: groups as one writes them; by default of the black boxes only.
    """

    def __init__(self, black: bool, centred: bool | None = None):
        self.black, self.calls = black, 0
        self.centred = black if centred is None else centred

    def box(self, function: Callable, kind=pt.dscalar, graph: Callable | None = None):
        """``function(numpy or pytensor.tensor, *inputs)`` as a black box or as a graph.

        With ``graph`` the graph is that function of tensors, and ``function`` is one of arrays alone.
        """
        if self.black:
            plain = function if graph else lambda *inputs: function(np, *inputs)
            return BlackBox(self, plain, kind)
        tensors = graph or (lambda *inputs: function(pt, *inputs))
        return lambda *inputs: tensors(*(pt.as_tensor(i) for i in inputs))

    def group(self, name, mu, sigma, shape):
        """Normal(mu, sigma), centred as one writes it; for the reference not."""
        if self.centred:
            return pm.Normal(name, mu, sigma, shape=shape)
        return pm.Deterministic(name, mu + sigma * pm.Normal(f"{name}_z", shape=shape))
