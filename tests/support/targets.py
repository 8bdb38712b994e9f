"""Skewed targets with exact draws and known moments."""

import numpy as np


class Banana:
    """x_1 ~ N(0, 4), x_2 | x_1 ~ N((x_1^2 - 4) / 2, 1), the others N(0, 1): skewed, known moments."""

    def __init__(self, dim):
        self.dim = dim
        self.mean = np.zeros(dim)
        self.cov = np.diag([4.0, 9.0] + [1.0] * (dim - 2))

    def log_density(self, x):
        bend = x[1] - 0.5 * (x[0] * x[0] - 4.0)
        return float(-0.125 * x[0] * x[0] - 0.5 * bend * bend - 0.5 * x[2:] @ x[2:])

    def draw(self, rng, size):
        x = rng.standard_normal((size, self.dim))
        x[:, 0] *= 2.0
        x[:, 1] += 0.5 * (x[:, 0] ** 2 - 4.0)
        return x
