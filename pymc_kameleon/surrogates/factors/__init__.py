"""Emulators of black boxes, one by one, by regression on their outputs."""
