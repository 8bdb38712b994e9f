"""What a step and a run say."""
