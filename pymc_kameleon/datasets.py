"""Data sets of the examples; they ship with the package, nothing is downloaded."""

from importlib import resources
from typing import NamedTuple

import numpy as np

__all__ = ["Glass", "LynxHare", "load_glass", "load_lynx_hare"]

_ATTRIBUTION = (
    "German, B. (1987). Glass Identification [Dataset]. UCI Machine Learning Repository. "
    "https://doi.org/10.24432/C5WW2P. Licensed under CC BY 4.0, https://creativecommons.org/licenses/by/4.0/."
)


def _lines(name: str) -> list[str]:
    """Of a file in ``data``, without the comments: the header first."""
    text = resources.files("pymc_kameleon").joinpath(f"data/{name}.csv").read_text("utf-8")
    return [line for line in text.splitlines() if not line.startswith("#")]


class LynxHare(NamedTuple):
    """Yearly pelt counts of a prey and its predator.

    Attributes
    ----------
    year : int ndarray of shape (21,)
        1900 to 1920.
    hare : float ndarray of shape (21,)
        Pelts of the prey, in thousands.
    lynx : float ndarray of shape (21,)
        Pelts of the predator, in thousands.
    """

    year: np.ndarray
    hare: np.ndarray
    lynx: np.ndarray


def load_lynx_hare() -> LynxHare:
    """Snowshoe hare and Canada lynx pelts of the Hudson's Bay Company, 1900-1920, in thousands.

    References
    ----------
    P. Howard (2009). Modeling Basics. Lecture notes for Math 442, Texas A&M University.
    B. Carpenter (2018). Predator-prey population dynamics: the Lotka-Volterra model in Stan.

    Examples
    --------
    >>> from pymc_kameleon.datasets import load_lynx_hare
    >>> data = load_lynx_hare()
    >>> print(data.year[3], data.hare[3], data.lynx[3])
    1903 77.4 35.2
    """
    year, hare, lynx = np.loadtxt(_lines("lynx_hare")[1:], delimiter=",").T
    return LynxHare(year.astype(int), hare.copy(), lynx.copy())


class Glass(NamedTuple):
    """Glass fragments: refractive index, eight oxides, and what the glass was made for.

    Attributes
    ----------
    X : float ndarray of shape (214, 9)
        Refractive index, then weight per cent of the oxides of ``feature_names``.
    y : float ndarray of shape (214,)
        1 for window glass (types 1 to 3; 163 rows), -1 for the rest (types 5 to 7; 51 rows).
    types : int ndarray of shape (214,)
        1 building windows, float processed; 2 building windows, not float processed; 3 vehicle windows, float
        processed; 5 containers; 6 tableware; 7 headlamps. There is no 4.
    feature_names : tuple of str
    attribution : str
        What the data's licence, CC BY 4.0, asks to be printed with it.
    """

    X: np.ndarray
    y: np.ndarray
    types: np.ndarray
    feature_names: tuple[str, ...]
    attribution: str


def load_glass() -> Glass:
    """Glass Identification: 214 fragments, nine covariates, window glass against the rest.

    Returns
    -------
    Glass

    Notes
    -----
    Rows 39 and 40 are equal: a covariance matrix of these rows is singular without a nugget.

    References
    ----------
    German, B. (1987). Glass Identification [Dataset]. UCI Machine Learning Repository. https://doi.org/10.24432/C5WW2P.
    CC BY 4.0.

    Examples
    --------
    >>> from pymc_kameleon.datasets import load_glass
    >>> data = load_glass()
    >>> print(data.feature_names[1], data.X[0, 1], data.types[0])
    Na 13.64 1
    """
    header, *lines = _lines("glass")
    rows = np.loadtxt(lines, delimiter=",")  # columns: row number, nine covariates, type
    types = rows[:, -1].astype(int)
    names = tuple(header.split(",")[1:-1])
    return Glass(np.ascontiguousarray(rows[:, 1:-1]), np.where(types <= 3, 1.0, -1.0), types, names, _ATTRIBUTION)
