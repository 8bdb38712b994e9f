"""``pk.sample``: chains that learn together, for log densities that are expensive."""
