import numpy as np

from pymc_kameleon.datasets import load_lynx_hare


def test_lynx_hare_is_the_hudsons_bay_table():
    data = load_lynx_hare()
    assert data.year.tolist() == list(range(1900, 1921))
    assert data.year.dtype.kind == "i"
    # the extremes of both cycles; the sums guard the other numbers
    assert data.year[data.hare.argmax()] == 1903
    assert data.hare.max() == 77.4
    assert data.year[data.lynx.argmax()] == 1904
    assert data.lynx.max() == 59.4
    assert data.hare.min() == 7.6
    assert data.lynx.min() == 4.0
    np.testing.assert_allclose([data.hare.sum(), data.lynx.sum()], [715.7, 423.5], rtol=1e-12)


def test_every_call_returns_arrays_of_its_own():
    load_lynx_hare().hare[:] = 0.0
    assert load_lynx_hare().hare[0] == 30.0
