"""Moves along trajectories of a surrogate."""
