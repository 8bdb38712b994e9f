"""Moves from a Gaussian mixture fitted to the history."""
