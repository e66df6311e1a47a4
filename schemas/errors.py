"""Every error Refold raises on purpose.

RefoldError                      exit code, one line, and what to do next
├── UserError            (2)     the user's input: a file, a key, a flag
│   ├── WorkloadError            the workload or something it extends
│   ├── UnsupportedModel         a model family the oracle does not know (named as such)
│   ├── ClusterError             the target-cluster or hardware file
│   ├── ScheduleError            a pipeline schedule that cannot be built or run
│   ├── SpecChanged              resume was asked for with other inputs than the run's
│   ├── NothingToResume          resume was asked for, and no run is unfinished
│   └── RunNotFound              no such run in the store
├── NothingLegal         (1)     no candidate is both legal and within the memory cap
├── EnvironmentMissing   (3)     something asked for by name is not installed or reachable
└── LogError             (4)     the event log
    ├── StaleWriter              somebody else appended first; nothing was written
    ├── RunLocked                another live process holds the run's lease
    ├── DamagedLog               an event at or below the anchored head is not what was written
    ├── UnknownEvent             a type or schema version newer than this Refold knows
    └── StoreRefused     (3)     the store's disk or server refuses: full, not ours, not there
"""

LONGEST_QUOTE = 80
"""Characters of a person's text that a message repeats."""


def shown(value: object) -> str:
    """`value` quoted as a message repeats it: never more of it than `LONGEST_QUOTE` characters."""
    text = str(value)
    return repr(text if len(text) <= LONGEST_QUOTE else text[: LONGEST_QUOTE - 1] + "…")


class RefoldError(Exception):
    """Base of the tree. `str(error)` is one line; `hint`, when set, is the next thing to do."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class UserError(RefoldError):
    """The user's input is wrong; the message says what and where."""

    exit_code = 2


class WorkloadError(UserError):
    """A workload, a preset it extends, or an architecture it describes, cannot be used."""


class UnsupportedModel(WorkloadError):
    """The file is well-formed, but its model family is one the oracle does not describe."""


class ClusterError(UserError):
    """A target-cluster, hardware or GPU-profile file cannot be used."""


class ScheduleError(UserError):
    """A pipeline schedule cannot be built for these sizes, is incomplete, or deadlocks."""


class SpecChanged(UserError):
    """A run cannot be resumed with another workload, cluster or search than it was started with."""


class NothingToResume(UserError):
    """The store holds no unfinished run, or none that can be read."""


class RunNotFound(UserError):
    """The store holds no run of that id."""


class NothingLegal(RefoldError):
    """The search ended without one legal trial that fits."""

    exit_code = 1


class EnvironmentMissing(RefoldError):
    """Something that was asked for by name is not there; the hint is the command that fixes it."""

    exit_code = 3


class LogError(RefoldError):
    """The event log cannot be read or written as its promises require."""

    exit_code = 4


class StaleWriter(LogError):
    """The expected sequence number is taken: another writer appended first. Nothing was written."""


class RunLocked(LogError):
    """A live process holds the run's lease."""


class DamagedLog(LogError):
    """An event does not match what was anchored; the message names the first bad one."""


class UnknownEvent(LogError):
    """An event's type or schema version is newer than this Refold knows."""


class StoreRefused(LogError):
    """The disk under the store refuses: it is full, read-only, not ours, or lacks hard links.

    Or its object store does: it cannot be reached, denies access, or has no such bucket.

    A `LogError`, because whoever must not go on after a failed append must not go on after this;
    with the exit code of the environment, because the log itself is as good as before.
    """

    exit_code = 3
