"""The UCI Glass Identification data: downloaded once, checked, cached; never shipped."""

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pooch

_URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/glass/"
_FILE = "glass.data"
_SHA256 = "dd67373f4baf2807345df02cbfef2093d342e61ad0d82a4fb79af43ef8ce449d"
_VARIABLE = "PYMC_KAMELEON_DATA_DIR"
_FEATURES = ("RI", "Na", "Mg", "Al", "Si", "K", "Ca", "Ba", "Fe")
_ATTRIBUTION = (
    "German, B. (1987). Glass Identification [Dataset]. UCI Machine Learning Repository. "
    "https://doi.org/10.24432/C5WW2P. Licensed under CC BY 4.0."
)


class Glass(NamedTuple):
    """Glass fragments: refractive index, eight oxides, and what the glass was made for.

    Attributes
    ----------
    X : float ndarray of shape (214, 9)
        Refractive index, then weight per cent of the oxides of ``feature_names``.
    y : float ndarray of shape (214,)
        1 for window glass (types 1 to 3; 163 rows), -1 for the rest (types 5 to 7; 51 rows).
    types : int ndarray of shape (214,)
        1 building windows, float processed; 2 building windows, not float processed; 3 vehicle
        windows, float processed; 5 containers; 6 tableware; 7 headlamps. There is no 4.
    feature_names : tuple of str
    attribution : str
        What the data's licence, CC BY 4.0, asks to be printed with it.
    """

    X: np.ndarray
    y: np.ndarray
    types: np.ndarray
    feature_names: tuple[str, ...]
    attribution: str


def load_glass(path: str | Path | None = None) -> Glass:
    """Glass Identification: 214 fragments, nine covariates, window glass against the rest.

    Without ``path`` the file comes from the UCI Machine Learning Repository on first use and
    from a cache afterwards. The environment variable ``PYMC_KAMELEON_DATA_DIR`` names another
    folder for the cache; a ``glass.data`` that is there already is used as it is.

    Parameters
    ----------
    path : path-like, optional
        A copy of UCI's ``glass.data``. Nothing is downloaded then.

    Returns
    -------
    Glass

    Raises
    ------
    FileNotFoundError
        ``path`` does not exist.
    OSError
        The download failed; the message names both ways around it.
    ValueError
        The file is not UCI's, byte for byte.

    Notes
    -----
    Rows 39 and 40 are equal: a covariance matrix of these rows is singular without a nugget.

    References
    ----------
    German, B. (1987). Glass Identification [Dataset]. UCI Machine Learning Repository.
    https://doi.org/10.24432/C5WW2P. CC BY 4.0.
    """
    content = (Path(path) if path is not None else _download()).read_bytes()
    if hashlib.sha256(content).hexdigest() != _SHA256:
        raise ValueError(f"{path} is not UCI's {_FILE}: its sha256 is not {_SHA256}")
    rows = np.loadtxt(content.decode("ascii").splitlines(), delimiter=",")
    types = rows[:, -1].astype(int)  # columns: row number, nine covariates, type
    y = np.where(types <= 3, 1.0, -1.0)
    return Glass(np.ascontiguousarray(rows[:, 1:-1]), y, types, _FEATURES, _ATTRIBUTION)


def _download() -> Path:
    """Path of the cached file, fetched and checked first if need be."""
    fetcher = pooch.create(
        path=pooch.os_cache("pymc_kameleon"),
        base_url=_URL,
        registry={_FILE: f"sha256:{_SHA256}"},
        env=_VARIABLE,
    )
    try:
        return Path(fetcher.fetch(_FILE))
    except OSError as error:  # requests' exceptions are OSErrors
        raise OSError(
            f"could not download {_URL}{_FILE} ({type(error).__name__}). Either pass a copy of the "
            f"file, load_glass(path=...), or set the environment variable {_VARIABLE} to a folder "
            f"that has {_FILE} in it."
        ) from error
