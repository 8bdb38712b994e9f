"""Several chains that share what they learn."""
