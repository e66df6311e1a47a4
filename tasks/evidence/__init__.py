"""Measured runs of others, with their sources: what fidelity is judged by and factors fitted to."""

from tasks.evidence.read import evidence, read_rows, sources

__all__ = ["evidence", "read_rows", "sources"]
