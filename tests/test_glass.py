"""The Glass data: what is in it, and every way to get at it, without leaving this machine."""

import functools
import http.server
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest

from pymc_kameleon import glass
from pymc_kameleon.glass import load_glass

# A missing file is a failure, not a skip: without it the GP tests would silently test nothing.
DATA = Path(__file__).parents[2] / "shared" / "data" / "glass.data"


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A local stand-in for UCI: a folder served over HTTP, and the names of the files asked for."""
    folder, asked = tmp_path / "uci", []
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format, *args):
            asked.append(self.path)

    handler = functools.partial(Handler, directory=str(folder))
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as uci:
        thread = threading.Thread(target=uci.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setattr(glass, "_URL", f"http://127.0.0.1:{uci.server_port}/")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setenv("PYMC_KAMELEON_DATA_DIR", str(tmp_path / "cache"))
        yield folder, asked
        uci.shutdown()
        thread.join()


def test_contents():
    data = load_glass(DATA)
    assert data.X.shape == (214, 9)
    assert data.X.flags["C_CONTIGUOUS"]
    assert np.isfinite(data.X).all()
    assert dict(zip(*np.unique(data.y, return_counts=True), strict=True)) == {-1.0: 51, 1.0: 163}
    counts = dict(zip(*np.unique(data.types, return_counts=True), strict=True))
    assert counts == {1: 70, 2: 76, 3: 17, 5: 13, 6: 9, 7: 29}
    assert data.feature_names == ("RI", "Na", "Mg", "Al", "Si", "K", "Ca", "Ba", "Fe")
    np.testing.assert_array_equal(
        data.X[0], [1.52101, 13.64, 4.49, 1.10, 71.78, 0.06, 8.75, 0.0, 0.0]
    )
    np.testing.assert_array_equal(data.X[38], data.X[39])
    np.testing.assert_array_equal(data.y == 1.0, data.types <= 3)
    for word in ("German", "10.24432/C5WW2P", "CC BY 4.0"):
        assert word in data.attribution
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(data)).X, data.X)


def test_downloads_once_and_caches(server):
    folder, asked = server
    (folder / "glass.data").write_bytes(DATA.read_bytes())
    first, second = load_glass(), load_glass()
    assert asked == ["/glass.data"]
    np.testing.assert_array_equal(first.X, second.X)


def test_environment_variable_replaces_the_download(server, tmp_path):
    _, asked = server
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "glass.data").write_bytes(DATA.read_bytes())
    assert load_glass().X.shape == (214, 9)
    assert asked == []


@pytest.mark.parametrize("online", [True, False], ids=["not found", "no network"])
def test_failed_download_names_both_ways_out(server, monkeypatch, online):
    if not online:
        monkeypatch.setattr(glass, "_URL", "http://127.0.0.1:1/")
    with pytest.raises(OSError, match=r"could not download") as caught:
        load_glass()
    assert "path=" in str(caught.value)
    assert "PYMC_KAMELEON_DATA_DIR" in str(caught.value)
    if online:  # the 404's body was never read, and the exception holds its socket
        caught.value.__cause__.response.close()


def test_downloaded_rubbish_is_refused(server):
    folder, _ = server
    (folder / "glass.data").write_bytes(DATA.read_bytes() + b"\n")
    with pytest.raises(ValueError, match="hash"):
        load_glass()


def test_wrong_file_is_refused(tmp_path):
    wrong = tmp_path / "glass.data"
    wrong.write_bytes(DATA.read_bytes().replace(b"1.52101", b"1.52102"))
    with pytest.raises(ValueError, match="sha256"):
        load_glass(wrong)
    with pytest.raises(FileNotFoundError):
        load_glass(tmp_path / "nothing")
