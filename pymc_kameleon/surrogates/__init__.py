"""Functions that are learned from points: no chain, no acceptance."""
