"""Gaussian-process classification: unbiased estimates of the marginal likelihood."""
