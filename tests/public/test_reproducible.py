"""The same seed gives the same draws: not only in one process, and wherever in memory the arrays happen to lie.

With ``fastmath`` the compiler may sum in any order and round products and sums together, and two compilations of one
source chose differently: a process that loaded another one's machine code from the cache got other last bits, and from
them other surrogates and other chains.
"""

import importlib
import pkgutil

import numpy as np
from numba.core.dispatcher import Dispatcher

import pymc_kameleon
from pymc_kameleon.samplers.kameleon import feature_covariance as fast_kameleon

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


def arrays(*shapes):
    rng = np.random.default_rng(1)
    return [rng.standard_normal(shape) for shape in shapes]


def features(y, frequencies, offsets, roots):
    return fast_kameleon.feature_covariance(y, frequencies, offsets, roots, True)
