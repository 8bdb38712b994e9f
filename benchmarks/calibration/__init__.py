"""Simulation-based calibration; see :mod:`benchmarks.calibration.__main__`."""
