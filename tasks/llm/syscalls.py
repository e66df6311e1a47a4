"""The system calls a model's code may not make, as a seccomp filter for bubblewrap.

The jail keeps files, processes and the network away; this keeps away what a jail does not bound:
new processes, memory that no process's address space counts, and the kernel's less travelled parts.
Numbers are those of Linux's `unistd.h` tables, the program is classic BPF over `seccomp_data`.
"""

import struct
from collections.abc import Mapping, Sequence

_EPERM, _ENOSYS = 1, 38
_CLONE_THREAD = 0x0001_0000
_ALLOW, _ERRNO, _KILL = 0x7FFF_0000, 0x0005_0000, 0x8000_0000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
"""Offsets in `seccomp_data`; both architectures are little-endian, so this is the low word."""
_LOAD, _RETURN = 0x20, 0x06
_IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT = 0x15, 0x35, 0x45
_X32 = 0x4000_0000
"""The bit of x86-64's second set of numbers, which would pass by a filter of the first."""

_FORBIDDEN = (
    *("fork", "vfork", "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd"),
    *("unshare", "setns", "mount", "umount2", "pivot_root", "chroot"),
    *("open_tree", "move_mount", "fsopen", "fsmount"),
    *("socket", "socketpair", "mq_open", "msgget", "semget", "shmget"),
    *("memfd_create", "memfd_secret", "userfaultfd", "io_uring_setup"),
    *("bpf", "perf_event_open", "keyctl", "add_key", "request_key"),
)
_SAME = {
    "clone3": 435, "io_uring_setup": 425, "open_tree": 428, "move_mount": 429, "fsopen": 430,
    "fsmount": 432, "pidfd_getfd": 438, "memfd_secret": 447,
}  # fmt: skip
_X86_64 = _SAME | {
    "clone": 56, "fork": 57, "vfork": 58, "unshare": 272, "setns": 308, "mount": 165,
    "umount2": 166, "pivot_root": 155, "chroot": 161, "socket": 41, "socketpair": 53, "shmget": 29,
    "semget": 64, "msgget": 68, "mq_open": 240, "memfd_create": 319, "ptrace": 101,
    "process_vm_readv": 310, "process_vm_writev": 311, "bpf": 321, "perf_event_open": 298,
    "userfaultfd": 323, "keyctl": 250, "add_key": 248, "request_key": 249,
}  # fmt: skip
_AARCH64 = _SAME | {
    "clone": 220, "unshare": 97, "setns": 268, "mount": 40, "umount2": 39, "pivot_root": 41,
    "chroot": 51, "socket": 198, "socketpair": 199, "shmget": 194, "semget": 190, "msgget": 186,
    "mq_open": 180, "memfd_create": 279, "ptrace": 117, "process_vm_readv": 270,
    "process_vm_writev": 271, "bpf": 280, "perf_event_open": 241, "userfaultfd": 282,
    "keyctl": 219, "add_key": 217, "request_key": 218,
}  # fmt: skip
_MACHINES: Mapping[str, tuple[int, Mapping[str, int]]] = {
    "x86_64": (0xC000_003E, _X86_64),
    "aarch64": (0xC000_00B7, _AARCH64),
}
"""As `uname -m` says it: the kernel's AUDIT_ARCH and its numbers. aarch64 has no fork or vfork."""


def filter_program(machine: str) -> bytes | None:
    """The filter for `machine`; None: its system calls are not known here."""
    if machine not in _MACHINES:
        return None
    architecture, numbers = _MACHINES[machine]
    program = [
        _statement(_LOAD, _ARCHITECTURE),
        *_when(_IF_EQUAL, architecture, [], otherwise=_KILL),
        _statement(_LOAD, _NUMBER),
        *_when(_IF_AT_LEAST, _X32, [_statement(_RETURN, _ERRNO | _EPERM)]),
    ]
    for name in _FORBIDDEN:
        if name in numbers:
            program += _when(_IF_EQUAL, numbers[name], [_statement(_RETURN, _ERRNO | _EPERM)])
    # The C library asks for a thread by clone3, whose flags no filter sees, and then by clone.
    program += _when(_IF_EQUAL, numbers["clone3"], [_statement(_RETURN, _ERRNO | _ENOSYS)])
    thread_or_nothing = [
        _statement(_LOAD, _FIRST_ARGUMENT),
        *_when(_IF_ANY_BIT, _CLONE_THREAD, [_statement(_RETURN, _ALLOW)]),
        _statement(_RETURN, _ERRNO | _EPERM),
    ]
    program += _when(_IF_EQUAL, numbers["clone"], thread_or_nothing)
    program.append(_statement(_RETURN, _ALLOW))
    return b"".join(program)


def _statement(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """One `sock_filter`."""
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _when(
    code: int, value: int, then: Sequence[bytes], *, otherwise: int | None = None
) -> list[bytes]:
    """`then` where the test holds; `otherwise`, a verdict, where it does not."""
    if otherwise is None:
        return [_statement(code, value, 0, len(then)), *then]
    return [_statement(code, value, len(then) + 1, 0), _statement(_RETURN, otherwise), *then]
