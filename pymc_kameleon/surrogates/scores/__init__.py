"""Surrogates from positions alone, by score matching."""
