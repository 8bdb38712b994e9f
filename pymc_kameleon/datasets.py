"""Data sets of the examples."""

from importlib import resources
from typing import NamedTuple

import numpy as np

from pymc_kameleon.glass import Glass, load_glass

__all__ = ["Glass", "LynxHare", "load_glass", "load_lynx_hare"]


class LynxHare(NamedTuple):
    """Yearly pelt counts of a prey and its predator.

    Attributes
    ----------
    year : int ndarray of shape (21,)
        1900 to 1920.
    hare, lynx : float ndarrays of shape (21,)
        Pelts, in thousands.
    """

    year: np.ndarray
    hare: np.ndarray
    lynx: np.ndarray


def load_lynx_hare() -> LynxHare:
    """Snowshoe hare and Canada lynx pelts of the Hudson's Bay Company, 1900-1920, in thousands.

    The file ships with the package; nothing is downloaded.

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
    lines = (
        resources.files("pymc_kameleon")
        .joinpath("data/lynx_hare.csv")
        .read_text("utf-8")
        .splitlines()
    )
    rows = [line for line in lines if not line.startswith("#")]
    year, hare, lynx = np.loadtxt(rows[1:], delimiter=",").T
    return LynxHare(year.astype(int), hare.copy(), lynx.copy())
