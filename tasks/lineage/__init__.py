"""Why this recipe: the chain of events, files and calls behind one trial, and drawings of it."""

from tasks.lineage.collect import lineage_of_trial

__all__ = ["lineage_of_trial"]
