"""The oracle: pure functions from a workload, a cluster and a trial to memory and time.

No I/O beyond its own shipped profiles, no clock, no randomness, no Prefect.
"""

PROJECTION_VERSION = "3"
"""Part of every signature: raised whenever a formula, constant or shipped profile changes."""
