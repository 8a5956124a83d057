"""A run's results as a page to read: tables beside the published ones, curves, heat maps, cost and commands."""

from relprop.bench.report.page import write_report
from relprop.bench.report.results import Results, read_results

__all__ = ["Results", "read_results", "write_report"]
