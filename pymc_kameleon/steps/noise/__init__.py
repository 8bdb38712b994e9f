"""What a noisy log density is, and asks of a step."""
