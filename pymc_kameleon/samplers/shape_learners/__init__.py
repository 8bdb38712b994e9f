"""Random walks whose size and shape learn separately."""
