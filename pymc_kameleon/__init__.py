"""Gradient-free, kernel-adaptive step methods for PyMC."""
