"""From any start to the typical set."""
