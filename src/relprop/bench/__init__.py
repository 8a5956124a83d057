"""Benchmarks: work cut into cells, a store that loses nothing, executors, and reports beside the papers' tables."""
