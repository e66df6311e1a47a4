"""YAML as people hand it in: bounded, with line numbers, and every mistake one line.

Values are what YAML 1.1's safe schema says (as the framework reads them), except that dates stay
text. Duplicate keys, keys that are not text, alias bombs and deep nesting are refused with a line.
"""

import hashlib
import math
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from schemas.errors import UserError

MAX_BYTES: Final = 1 << 20
"""Largest file read; the longest real workload is 12 KiB."""
MAX_NODES: Final = 50_000
"""Most values a file may hold once its aliases are expanded."""
MAX_DEPTH: Final = 64

KeyPath = tuple[str, ...]

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MERGE: Final = "tag:yaml.org,2002:merge"
_TEXT_TAGS: Final = frozenset(
    {"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value", "tag:yaml.org,2002:str"}
)
_COLLECTION_TAGS: Final = frozenset(
    {None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:omap"}
)


@dataclass(frozen=True, slots=True)
class YamlFile:
    """One parsed file. `lines` gives the line (from 1) of each key, by its path of keys."""

    label: str
    document: dict[str, Any]
    sha256: str
    lines: dict[KeyPath, int] = field(default_factory=dict)

    def line_of(self, path: KeyPath) -> int | None:
        """The line of `path`, or of the nearest mapping above it that has one."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return None


def is_regular_file(path: Path) -> bool:
    """Whether a file is there to be read; a name no file can have is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def read_bytes(path: Path, label: str, error: type[UserError], most: int = MAX_BYTES) -> bytes:
    """The bytes of a regular file of at most `most` bytes, or `error` saying why not."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            what = "is a directory" if stat.S_ISDIR(mode) else "not a regular file"
            raise error(f"{label:.200}: {what}")
        with path.open("rb") as stream:
            data = stream.read(most + 1)
    except FileNotFoundError as reason:
        raise error(f"{label:.200}: no such file") from reason
    except (OSError, ValueError) as reason:
        text = reason.strerror if isinstance(reason, OSError) else "not a usable path"
        raise error(f"{label:.200}: cannot be read: {text}") from reason
    if len(data) > most:
        raise error(f"{label}: larger than {most // 1024} KiB, which no such file is")
    return data


def parse_yaml(data: bytes, label: str, error: type[UserError]) -> YamlFile:
    """Parse the bytes of one file whose top level is a mapping; `error` names the line."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as reason:
        raise error(f"{label}: not UTF-8 text (byte {reason.start})") from reason
    builder = _Builder(label, error)
    document = _built(builder, text)
    if document is None:
        raise error(f"{label}: the file is empty")
    if not isinstance(document, dict):
        kind = "a list" if isinstance(document, list) else f"the value {document!r:.40}"
        raise error(f"{label}: expected a mapping of keys to values at the top, found {kind}")
    return YamlFile(label, document, hashlib.sha256(data).hexdigest(), builder.lines)


def parse_value(text: str, label: str, error: type[UserError]) -> Any:
    """The value that `text` is in YAML, under the bounds of a file; `error` says what is wrong."""
    if not text.isascii() and text.encode(errors="replace").decode() != text:
        raise error(f"{label}: not UTF-8 text")
    return _built(_Builder(label, error), text)


def _built(builder: "_Builder", text: str) -> Any:
    label, error = builder.label, builder.error
    try:
        return builder.build(text)
    except yaml.MarkedYAMLError as reason:
        mark = reason.problem_mark or reason.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise error(
            f"{label}{line}: not YAML: {one_line(reason.problem or 'malformed')}"
        ) from reason
    except yaml.YAMLError as reason:
        raise error(f"{label}: not YAML: {one_line(str(reason))}") from reason


def read_yaml(path: Path, label: str, error: type[UserError]) -> YamlFile:
    """Read and parse one YAML file; `label` is what messages call it."""
    return parse_yaml(read_bytes(path, label, error), label, error)


def one_line(text: str) -> str:
    """`text` without line breaks."""
    return " ".join(text.split())


@dataclass(slots=True)
class _Built:
    """A value and how many values it holds in all, aliases expanded."""

    value: Any
    size: int


class _Builder:
    """Builds plain values from the parser's events, counting as it goes.

    Events rather than nodes, because the stock composer recurses without a limit and shares
    aliased nodes, so that neither depth nor expanded size can be bounded there.
    """

    def __init__(self, label: str, error: type[UserError]) -> None:
        self.label = label
        self.error = error
        self.lines: dict[KeyPath, int] = {}
        self._anchors: dict[str, _Built | None] = {}
        self._loader: Any = None

    def build(self, text: str) -> Any:
        """The document's value; None when there is none."""
        self._loader = _LOADER(text)
        try:
            self._loader.get_event()
            if self._loader.check_event(yaml.StreamEndEvent):
                return None
            self._loader.get_event()
            built = self._value((), 0)
            self._loader.get_event()
            if not self._loader.check_event(yaml.StreamEndEvent):
                event = self._loader.get_event()
                raise self._refuse(event, "a second YAML document starts here; one is expected")
            return built.value
        finally:
            self._loader.dispose()

    def _refuse(self, event: Any, message: str) -> UserError:
        return self.error(f"{self.label}:{event.start_mark.line + 1}: {message}")

    def _value(self, path: KeyPath, depth: int) -> _Built:
        event = self._loader.get_event()
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if depth > MAX_DEPTH:
            raise self._refuse(event, f"nested more than {MAX_DEPTH} levels deep")
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            built = _Built(self._scalar(event), 1)
        elif event.tag not in _COLLECTION_TAGS:
            raise self._refuse(event, f"the tag {event.tag} is not allowed")
        elif isinstance(event, yaml.SequenceStartEvent):
            built = self._sequence(event, path, depth)
        else:
            built = self._mapping(event, path, depth)
        if built.size > MAX_NODES:
            raise self._refuse(event, f"holds more than {MAX_NODES} values, aliases expanded")
        if event.anchor is not None:
            self._anchors[event.anchor] = built
        return built

    def _alias(self, event: Any) -> _Built:
        if event.anchor not in self._anchors:
            raise self._refuse(event, f"the alias *{event.anchor} has no anchor above it")
        built = self._anchors[event.anchor]
        if built is None:
            raise self._refuse(event, f"the alias *{event.anchor} is inside its own anchor")
        return built

    def _scalar(self, event: Any) -> Any:
        tag = event.tag
        if tag is None or tag == "!":
            tag = self._loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        if tag in _TEXT_TAGS:
            return event.value
        node = yaml.ScalarNode(tag, event.value, event.start_mark, event.end_mark)
        try:
            value = self._loader.construct_object(node)
        except (ValueError, OverflowError) as reason:
            raise self._refuse(event, f"{event.value!r:.40} is not a valid value") from reason
        if isinstance(value, bytes) or (isinstance(value, float) and not math.isfinite(value)):
            raise self._refuse(event, f"{event.value!r:.40} is not a value a setting can have")
        return value

    def _sequence(self, start: Any, path: KeyPath, depth: int) -> _Built:
        items: list[Any] = []
        size = 1
        while not self._loader.check_event(yaml.SequenceEndEvent):
            item = self._value((*path, f"[{len(items)}]"), depth + 1)
            items.append(item.value)
            size += item.size
            if size > MAX_NODES:
                break
        else:
            self._loader.get_event()
        if size > MAX_NODES:
            raise self._refuse(start, f"holds more than {MAX_NODES} values, aliases expanded")
        return _Built(items, size)

    def _mapping(self, start: Any, path: KeyPath, depth: int) -> _Built:
        own: dict[str, Any] = {}
        merged: list[dict[str, Any]] = []
        size = 1
        while not self._loader.check_event(yaml.MappingEndEvent):
            event = self._loader.peek_event()
            key = self._key(event, path, depth)
            if key is None:
                built = self._value(path, depth + 1)
                merged.extend(self._merge_sources(event, built.value))
            else:
                if key in own:
                    raise self._refuse(
                        event,
                        f"the key {key!r} is set twice (first on line {self.lines[(*path, key)]})",
                    )
                self.lines[(*path, key)] = event.start_mark.line + 1
                built = self._value((*path, key), depth + 1)
                own[key] = built.value
            size += built.size + 1
            if size > MAX_NODES:
                raise self._refuse(start, f"holds more than {MAX_NODES} values, aliases expanded")
        self._loader.get_event()
        if not merged:
            return _Built(own, size)
        value: dict[str, Any] = {}
        for source in reversed(merged):
            value.update(source)
        return _Built(value | own, size)

    def _key(self, event: Any, path: KeyPath, depth: int) -> str | None:
        """The next key; None for the merge key `<<`."""
        if not isinstance(event, yaml.ScalarEvent | yaml.AliasEvent):
            raise self._refuse(event, "a key must be text")
        if (
            isinstance(event, yaml.ScalarEvent)
            and event.value == "<<"
            and event.tag in (None, _MERGE)
            and event.implicit[0]
        ):
            self._loader.get_event()
            return None
        key = self._value((*path, "?"), depth + 1).value
        if not isinstance(key, str):
            written = getattr(event, "value", str(key))
            raise self._refuse(
                event, f"YAML reads the key {written!r} as {key!r}, not as text; put it in quotes"
            )
        return key

    def _merge_sources(self, event: Any, value: Any) -> list[dict[str, Any]]:
        sources = value if isinstance(value, list) else [value]
        if not all(isinstance(source, dict) for source in sources):
            raise self._refuse(event, "the merge key << takes a mapping or a list of mappings")
        return sources
