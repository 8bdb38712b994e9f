"""Local normal proposals with a kernel's covariance: full, random features, principal components."""
