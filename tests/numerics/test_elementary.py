"""Arithmetic in place of library calls: right but for a few bits, however large what is asked."""

import numpy as np

from pymc_kameleon.numerics import elementary


def test_exponentials_are_right_but_for_a_few_bits():
    x = -np.concatenate([np.geomspace(1e-300, 700.0, 5000), [0.0, 710.0, 1e300, np.inf]])
    found = x.copy()
    elementary.exponentials(found)
    np.testing.assert_allclose(found[:-3], np.exp(x[:-3]), rtol=1e-15)
    assert (found[-3:] < 1e-303).all()


def test_sines_and_cosines_are_right_but_for_a_few_bits():
    x = np.concatenate([[0.0], np.geomspace(1e-300, 1e6, 5000), np.pi / 4 * np.arange(1, 4000)])
    x = np.concatenate([x, -x])
    np.testing.assert_allclose(elementary.waves(x), (np.sin(x), np.cos(x)), rtol=0, atol=3e-16)
    far = np.array([1e8, -7e8, 1e9])
    np.testing.assert_allclose(elementary.waves(far)[0], np.sin(far), rtol=0, atol=1e-16 * 1e9)


def test_sines_and_cosines_are_finite_wherever_a_point_is():
    sine, cosine = elementary.waves(np.array([1e10, -1e300, np.inf, np.nan]))
    assert sine[:3].tolist() == [0.0] * 3
    assert cosine[:3].tolist() == [1.0] * 3
    assert np.isnan([sine[3], cosine[3]]).all()
