"""With surrogates from positions: lite and finite."""
