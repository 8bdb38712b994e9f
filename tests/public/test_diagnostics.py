import arviz as az
import numpy as np
import pytest
import xarray as xr

from pymc_kameleon.diagnostics import efficiency, family


def as_inference_data(arrays):
    if az.__version__.startswith("0."):
        return az.from_dict(posterior=arrays)
    return az.from_dict({"posterior": arrays})


def test_efficiency_is_arvizs_bulk_ess_per_thousand_evaluations():
    rng = np.random.default_rng(4)
    x = rng.standard_normal((4, 500, 3))
    x[:, :, 2] = np.cumsum(x[:, :, 2], axis=1)  # a random walk: hardly any effective draws
    ess = np.array([float(az.ess(x[:, :, i], method="bulk")) for i in range(3)])
    found = efficiency(x, 8000)
    assert found.minimum == pytest.approx(ess.min() / 8, rel=1e-12)
    assert found.median == pytest.approx(np.median(ess) / 8, rel=1e-12)
    assert ess[2] < 100 < 1000 < ess[0]


def test_efficiency_reads_the_posterior_of_inference_data():
    rng = np.random.default_rng(5)
    arrays = {"a": rng.standard_normal((2, 400)), "b": rng.standard_normal((2, 400, 2, 3))}
    data = as_inference_data(arrays)
    flat = np.concatenate([arrays["a"][:, :, None], arrays["b"].reshape(2, 400, 6)], axis=2)
    assert efficiency(data, 1000) == pytest.approx(efficiency(flat, 1000), rel=1e-12)
    only = efficiency(data, 1000, var_names=["a"])
    assert only == pytest.approx(efficiency(flat[:, :, :1], 1000), rel=1e-12)


def test_a_constant_chain_has_no_effective_draws():
    x = np.random.default_rng(6).standard_normal((2, 400, 2))
    x[:, :, 1] = 3.0
    assert efficiency(x, 1000).minimum == 0.0


def test_the_family_of_a_surrogate_in_words():
    numbers = {"sample_stats": {"surrogate": xr.DataArray(np.array([[0, 1, -1], [2, 14, 15]], dtype=np.int8))}}
    words = [["none", "quadratic", "own"], ["polynomial", "pairwise4", "factors"]]
    assert family(numbers).tolist() == words
    assert family({"sample_stats": {"surrogate": xr.DataArray(np.array(words))}}).tolist() == words  # of pk.sample
