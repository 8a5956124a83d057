"""Domains: how raw inputs become tensors and units."""
