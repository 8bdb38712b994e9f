"""Hierarchical models behind black boxes; see :mod:`benchmarks.hierarchical.__main__`."""
