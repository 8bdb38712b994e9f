"""Derivatives by central differences: what every gradient that is written by hand is held against."""

import numpy as np

from pymc_kameleon.surrogates.factors.emulator import emulate
from pymc_kameleon.surrogates.factors.layout import Layout


def slopes(function, x, h=1e-5):
    """Of a function of x, (d,), along every coordinate: shape (d, ...)."""
    return np.array([(function(x + e) - function(x - e)) / (2.0 * h) for e in h * np.eye(len(x))])


def assert_jacobian(emulator, point, rtol=1e-5):
    """What is emulated; the slopes of its outputs and of the wall's penalty are those of differences."""
    found = emulate(emulator, point)
    outputs, jacobian, _, slope = found
    columns = Layout(emulator.inputs, emulator.outputs, np.zeros(len(emulator.inputs) - 1, bool)).columns
    dense = np.zeros((len(outputs), len(point)))
    np.add.at(dense, (np.arange(len(outputs))[:, None], columns), jacobian)
    by_w, by_wall = (slopes(lambda w, i=i: emulate(emulator, w)[i], point, 1e-6) for i in (0, 2))
    np.testing.assert_allclose(dense.T, by_w, rtol=rtol, atol=1e-6)
    np.testing.assert_allclose(slope, by_wall, rtol=rtol, atol=1e-5)
    return found
