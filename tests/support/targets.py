"""Skewed targets with exact draws."""

import numpy as np


class Banana:
    """x_1 ~ N(0, 4), x_2 | x_1 ~ N((x_1^2 - 4) / 2, 1), the others N(0, 1)."""

    def __init__(self, dim):
        self.dim = dim

    def log_density(self, x):
        bend = x[1] - 0.5 * (x[0] * x[0] - 4.0)
        return float(-0.125 * x[0] * x[0] - 0.5 * bend * bend - 0.5 * x[2:] @ x[2:])

    def draw(self, rng, size):
        x = rng.standard_normal((size, self.dim))
        x[:, 0] *= 2.0
        x[:, 1] += 0.5 * (x[:, 0] ** 2 - 4.0)
        return x


class Skewed:
    """A funnel whose shape is never the same twice: e^x_1 ~ Exp(1), x_2 | x_1 ~ N(0, e^(2 x_1))."""

    @staticmethod
    def log_density(x):
        return -np.exp(x[0]) - 0.5 * (x[1] * np.exp(-x[0])) ** 2

    @staticmethod
    def draw(rng, size):
        x = np.log(rng.exponential(size=size))
        return np.column_stack([x, np.exp(x) * rng.standard_normal(size)])
