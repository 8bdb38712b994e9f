"""What is evaluated beside the draws: probes, audits, looks."""
