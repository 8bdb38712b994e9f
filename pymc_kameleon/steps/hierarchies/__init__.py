"""Coordinates in which a hierarchy is easy to move, from a model's graph."""
