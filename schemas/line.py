"""Text that is printed, written into files and named in messages: one line of it."""

from typing import Annotated, Final

from pydantic import AfterValidator

MOST_CHARACTERS: Final = 500


def _one_line(text: str) -> str:
    if len(text) > MOST_CHARACTERS or not text.isprintable():
        raise ValueError(f"expected one line of at most {MOST_CHARACTERS} printable characters")
    return text


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a name")
    return text


Line = Annotated[str, AfterValidator(_one_line)]
Name = Annotated[Line, AfterValidator(_name)]
