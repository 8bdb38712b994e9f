"""The UCI Glass Identification data, which ships with the package."""

from importlib import resources
from typing import NamedTuple

import numpy as np

_ATTRIBUTION = (
    "German, B. (1987). Glass Identification [Dataset]. UCI Machine Learning Repository. "
    "https://doi.org/10.24432/C5WW2P. Licensed under CC BY 4.0, "
    "https://creativecommons.org/licenses/by/4.0/."
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


def load_glass() -> Glass:
    """Glass Identification: 214 fragments, nine covariates, window glass against the rest.

    The file ships with the package; nothing is downloaded.

    Returns
    -------
    Glass

    Notes
    -----
    Rows 39 and 40 are equal: a covariance matrix of these rows is singular without a nugget.

    References
    ----------
    German, B. (1987). Glass Identification [Dataset]. UCI Machine Learning Repository.
    https://doi.org/10.24432/C5WW2P. CC BY 4.0.

    Examples
    --------
    >>> from pymc_kameleon.datasets import load_glass
    >>> data = load_glass()
    >>> print(data.feature_names[1], data.X[0, 1], data.types[0])
    Na 13.64 1
    """
    text = resources.files("pymc_kameleon").joinpath("data/glass.csv").read_text("utf-8")
    header, *lines = (line for line in text.splitlines() if not line.startswith("#"))
    rows = np.loadtxt(lines, delimiter=",")  # columns: row number, nine covariates, type
    types = rows[:, -1].astype(int)
    names = tuple(header.split(",")[1:-1])
    y = np.where(types <= 3, 1.0, -1.0)
    return Glass(np.ascontiguousarray(rows[:, 1:-1]), y, types, names, _ATTRIBUTION)
