"""Linear algebra, histories and random features: what every other wing stands on."""
