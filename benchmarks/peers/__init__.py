"""Other people's samplers and ours on the same log densities, from the same starts, at equal numbers of evaluations."""
