"""How a chain moves and learns: arrays in, arrays out."""
