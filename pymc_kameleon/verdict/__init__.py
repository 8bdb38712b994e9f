"""When a run is usable, and what there is to doubt."""
