"""Effective draws from 500 to 5,000 log density evaluations in all: chains that learn together, beside others."""
