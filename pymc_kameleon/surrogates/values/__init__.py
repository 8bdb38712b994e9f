"""Surrogates from evaluated log densities, by regression."""
