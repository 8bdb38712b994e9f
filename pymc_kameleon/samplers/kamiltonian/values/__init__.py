"""With surrogates from evaluated log densities."""
