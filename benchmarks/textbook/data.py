"""The textbook models' data sets; ``data.toml`` says where they are from."""

import tomllib
from pathlib import Path

import numpy as np

STORED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def data(*names: str) -> list[np.ndarray]:
    return [np.array(STORED[name]) for name in names]
