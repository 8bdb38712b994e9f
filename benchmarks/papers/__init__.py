"""The papers' own experiments, one module each; docs/papers.md says what agrees."""
