"""The prompts, in one place: text files beside this module, known by the hash of their content."""

from functools import cache
from importlib.resources import files

from storage.canonical import sha256_hex


@cache
def prompt(name: str) -> str:
    """The text of `prompts/<name>.md`."""
    return (files("tasks.llm") / "prompts" / f"{name}.md").read_text(encoding="utf-8")


@cache
def prompt_hash(name: str) -> str:
    """What identifies `prompts/<name>.md`, as `text_hash` does."""
    return text_hash(prompt(name))


def text_hash(text: str) -> str:
    """What identifies a prompt: 16 hex digits of its SHA-256."""
    return sha256_hex(text.encode())[:16]
