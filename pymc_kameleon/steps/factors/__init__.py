"""Black boxes one by one, from a model's graph."""
