"""The same seed gives the same draws: not only in one process, and wherever in memory the arrays happen to lie.

With ``fastmath`` the compiler may sum in any order and round products and sums together, and two compilations of one
source chose differently: a process that loaded another one's machine code from the cache got other last bits, and from
them other surrogates and other chains.
"""

import importlib
import pkgutil

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

import pymc_kameleon
from pymc_kameleon.samplers.gaussian_mixture import moves as mixture_moves
from pymc_kameleon.samplers.kameleon import feature_covariance as fast_kameleon
from pymc_kameleon.samplers.kameleon import local_covariance
from pymc_kameleon.samplers.kameleon import pca as pca_kameleon
from pymc_kameleon.surrogates import transitions as surrogate_dynamics
from pymc_kameleon.surrogates.values import features as value_features

NOT_IMPORTED = {"pymc_kameleon.__main__"}


def compiled_functions():
    for module in pkgutil.walk_packages(pymc_kameleon.__path__, "pymc_kameleon."):
        if module.name not in NOT_IMPORTED:
            for name, value in vars(importlib.import_module(module.name)).items():
                if isinstance(value, Dispatcher) and value.py_func.__module__ == module.name:
                    yield f"{module.name}.{name}", value


def test_no_compiled_function_leaves_rounding_to_the_compiler():
    functions = dict(compiled_functions())
    assert len(functions) > 50  # they have been found
    assert [name for name, f in functions.items() if f.targetoptions.get("fastmath")] == []


def at(array, offset):
    """A copy of ``array`` that starts ``offset`` times 8 bytes after a multiple of 64."""
    array = np.asarray(array, dtype=float)
    memory = np.empty(array.size + 16)
    first = (offset - memory.ctypes.data // 8) % 8
    copy = memory[first : first + array.size].reshape(array.shape)
    copy[...] = array
    assert copy.ctypes.data // 8 % 8 == offset
    return copy


D, N, M, R = 3, 101, 37, 11


def arrays(*shapes):
    rng = np.random.default_rng(1)
    return [rng.standard_normal(shape) for shape in shapes]


def positive(array):
    return np.abs(array) + 0.1


def local(y, points):
    return local_covariance.gaussian_local(y, points, 0.7)


def gradients(y, points):
    return local_covariance.gaussian_gradients(y, points, 0.7)


def features(y, frequencies, offsets, roots):
    return fast_kameleon.feature_covariance(y, frequencies, offsets, roots, True)


def shift(y, frequencies, offsets, density):
    return fast_kameleon.mean_shift(y, frequencies, offsets, density, True, 0.05)


def directions(y, points, coefficients, weights):
    return pca_kameleon.gaussian_directions(y, points, 0.7, coefficients, positive(weights), True)


def moment(z, log_norms, means, covariances, axes, variances):
    lower = mixture_moves.local_moment(z, log_norms, means, covariances, axes, positive(variances))
    return np.tril(lower)


CASES = {
    local: [(D,), (D, N)],
    gradients: [(D,), (D, N)],
    features: [(D,), (D, M), (M,), (2, R, M)],
    shift: [(D,), (D, M), (M,), (2, M)],
    directions: [(D,), (D, N), (R, N), (R,)],
    moment: [(D,), (R,), (R, D), (R, D, D), (R, D, D), (R, D)],
    np.dot: [(N,), (N,)],  # what is left to BLAS
}


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_the_last_bit_does_not_depend_on_where_arrays_lie(function):
    given = arrays(*CASES[function])
    expected = function(*given)
    for offset in range(8):
        for other in range(8):
            placed = [at(a, (offset, other)[i % 2]) for i, a in enumerate(given)]
            np.testing.assert_array_equal(function(*placed), expected)


def test_nor_does_a_surrogates():
    """Every kind of kernel feature, its value, its slope and where inner transitions lead."""
    rng = np.random.default_rng(2)
    surrogate = value_features.blank(np.zeros(D), np.ones(D), np.eye(D))
    surrogate = surrogate._replace(quadratic=-np.eye(D))
    kinds = (value_features.NONE, value_features.GAUSSIAN, value_features.FOURIER)
    for kind in kinds:
        if kind != value_features.NONE:
            surrogate = surrogate._replace(
                kind=kind, centres=rng.standard_normal((M, D)), weights=rng.standard_normal(M)
            )
        if kind == value_features.FOURIER:
            surrogate = surrogate._replace(phases=rng.standard_normal(M))
        seen = set()
        for offset in range(8):
            fields = {
                name: at(value, offset)
                for name, value in surrogate._asdict().items()
                if isinstance(value, np.ndarray) and value.dtype == float and value.size
            }
            placed, here = surrogate._replace(**fields), at(np.full((1, D), 0.3), offset)
            (value,), slope = value_features.values_and_slopes(placed, here)
            metric, archive = at(np.eye(D), offset), np.zeros((1, D))
            dynamics = surrogate_dynamics.make_dynamics(placed, metric, archive, 0.1)
            path = surrogate_dynamics.run(
                np.random.default_rng(3), at(np.full(D, 0.3), offset), dynamics, surrogate_dynamics.ARMS[0]
            )
            seen.add((value, slope.tobytes(), path.z.tobytes(), path.end_value))
        assert len(seen) == 1
