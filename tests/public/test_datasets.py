"""What is in the data sets, and that they are what their sources publish."""

import hashlib
from importlib import resources

import numpy as np
import pytest

from pymc_kameleon.datasets import load_glass, load_lynx_hare

FOLDER = resources.files("pymc_kameleon") / "data"
UCI_SHA256 = "dd67373f4baf2807345df02cbfef2093d342e61ad0d82a4fb79af43ef8ce449d"  # of glass.data


def test_lynx_hare_is_the_hudsons_bay_table():
    data = load_lynx_hare()
    assert data.year.tolist() == list(range(1900, 1921))
    assert data.year.dtype.kind == "i"
    # the extremes of both cycles; the sums guard the other numbers
    assert data.year[[data.hare.argmax(), data.lynx.argmax()]].tolist() == [1903, 1904]
    assert [data.hare.max(), data.lynx.max(), data.hare.min(), data.lynx.min()] == [77.4, 59.4, 7.6, 4.0]  # fmt: skip
    np.testing.assert_allclose([data.hare.sum(), data.lynx.sum()], [715.7, 423.5], rtol=1e-12)


def test_glass_has_its_rows_and_types():
    data = load_glass()
    assert data.X.shape == (214, 9)
    assert data.X.flags["C_CONTIGUOUS"]
    assert np.isfinite(data.X).all()
    counts = dict(zip(*np.unique(data.types, return_counts=True), strict=True))
    assert counts == {1: 70, 2: 76, 3: 17, 5: 13, 6: 9, 7: 29}
    np.testing.assert_array_equal(data.y, np.where(data.types <= 3, 1.0, -1.0))
    assert data.feature_names == ("RI", "Na", "Mg", "Al", "Si", "K", "Ca", "Ba", "Fe")
    np.testing.assert_array_equal(data.X[0], [1.52101, 13.64, 4.49, 1.10, 71.78, 0.06, 8.75, 0.0, 0.0])
    np.testing.assert_array_equal(data.X[38], data.X[39])


def rows_digest(text):
    """sha256 of a file's rows, without what we added on top of them."""
    rows = [line for line in text.splitlines(keepends=True) if line[0].isdigit()]
    return hashlib.sha256("".join(rows).encode()).hexdigest()


def test_the_rows_of_glass_are_those_that_uci_publishes_byte_for_byte():
    text = (FOLDER / "glass.csv").read_text("utf-8")
    assert rows_digest(text) == UCI_SHA256
    assert rows_digest(text.replace("1.52101", "1.52102")) != UCI_SHA256


@pytest.mark.parametrize("where", ["attribution", "glass.csv", "README.md"])
def test_creator_source_and_licence_are_named_wherever_the_data_are(where):
    text = load_glass().attribution if where == "attribution" else (FOLDER / where).read_text()
    for word in ("German", "10.24432/C5WW2P", "CC BY 4.0", "creativecommons.org/licenses/by/4.0"):
        assert word in text


def test_every_call_returns_arrays_of_its_own():
    load_glass().X[:] = load_lynx_hare().hare[0] = 0.0
    assert load_glass().X[0, 0] == 1.52101
    assert load_lynx_hare().hare[0] == 30.0
