"""Several modes, each with a surrogate of its own, and jumps between them."""
