"""Read models: files drawn from a run's state, and from nothing else.

P12: deleted, they come back from the log byte for byte; each says "as of event n". No clock, no
randomness, no order of a dict enters them.
"""

from storage.exports.everything import write_exports

__all__ = ["write_exports"]
