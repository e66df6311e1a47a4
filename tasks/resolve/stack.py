"""The software stack of a cluster: declared in its file, or detected on the benchmark host.

Declared wins. What was detected is recorded as part of the resolved cluster, so that whoever takes
a run up again, wherever that is, finds what its scores were made for.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.cluster import NOT_KNOWN, Stack
from tasks.resolve.host_software import OF_VENDOR, Found

DECLARED = "declared (cluster file)"
DETECT = "detect"
"""Declared so, an entry is looked for on this host, whether or not it is the benchmark host."""


@dataclass(frozen=True, slots=True)
class KnownStack:
    """A stack, where each entry came from, and what is odd about it."""

    stack: Stack
    origin: Mapping[str, str]
    warnings: tuple[str, ...] = ()


def declared_stack(stack: Stack) -> KnownStack:
    """What the cluster file says."""
    origin = {
        name: DECLARED if name in stack.model_fields_set else NOT_KNOWN for name in stack.parts
    }
    return KnownStack(stack, origin)


def wants_detection(stack: Stack, *, is_host: bool) -> bool:
    """Whether anything is to be looked for."""
    return is_host or DETECT in stack.model_dump().values()


def with_detected(
    declared: Stack, found: Mapping[str, Found], place: str, vendor: str, *, is_host: bool
) -> KnownStack:
    """`declared` with what it leaves open, or asks to be looked for, as `found` on this host.

    `place` is where the stack stands, or would stand, in the cluster file; `vendor` the GPUs'.
    """
    said = declared.model_dump()
    stated = {name for name in declared.model_fields_set if said[name] != DETECT}
    asked = {name for name, value in said.items() if value == DETECT}
    sought = asked | (set(OF_VENDOR[vendor]) - stated if is_host else set())
    values = {name: said[name] for name in said if name in stated}
    values |= {name: found[name].version for name in sought if name in found}
    origin = dict.fromkeys(stated, DECLARED)
    origin |= {name: f"detected ({found[name].where})" for name in sought if name in found}
    stack = Stack.model_validate(values)
    warnings = [
        f"{place}.{name}: {said[name]} is declared and counts, but this host has"
        f" {found[name].version} ({found[name].where})"
        for name in sorted(stated & found.keys())
        if is_host and not _agree(said[name], found[name].version)
    ]
    missing = sorted(sought - found.keys())
    if missing:
        warnings.append(
            f"{place}: {', '.join(missing)}: not found on this host and recorded as none; state in"
            " the file what is known"
        )
    return KnownStack(
        stack, {name: origin.get(name, NOT_KNOWN) for name in stack.parts}, tuple(warnings)
    )


def _agree(declared: str, found: str) -> bool:
    """Whether a declared version is the found one, perhaps without its last parts."""
    if declared == found:
        return True
    return found.startswith(declared) and not found[len(declared)].isalnum()
