"""`moe_layer_freq`: which decoder layers are mixture-of-experts.

A whole number n marks layers 0, n, 2n, …; a list marks each layer with 0 or 1; text is a sum of
repeated lists, `([0]*3+[1]*58)`, read by the grammar below and never evaluated:

    sum     = product {"+" product}
    product = factor {"*" count} | count "*" factor
    factor  = "[" [bit {"," bit}] "]" | "(" sum ")"
"""

import re
from collections.abc import Sequence
from typing import Any, Final

MAX_LAYERS: Final = 10_000
_MAX_DEPTH: Final = 32
_TOKEN: Final = re.compile(r"\s*([0-9]{1,6}|[\[\]()+*,])")


class PatternError(ValueError):
    """The pattern has no meaning; the message says why in one line."""


def moe_layers(freq: Any, num_layers: int) -> tuple[bool, ...]:
    """Per decoder layer, whether it is MoE.

    Raises PatternError for a pattern that is malformed or not of `num_layers` entries.
    """
    if isinstance(freq, str) and freq.strip().isdecimal() and len(freq.strip()) <= 6:
        freq = int(freq)
    if isinstance(freq, int) and not isinstance(freq, bool):
        if not 1 <= freq <= MAX_LAYERS:
            raise PatternError(
                f"expected every how many layers one is MoE, 1 to {MAX_LAYERS}, got {freq!s:.40}"
            )
        return tuple(layer % freq == 0 for layer in range(num_layers))
    if isinstance(freq, str):
        freq = parse_pattern(freq)
    if not isinstance(freq, Sequence) or any(
        isinstance(bit, bool) or bit not in (0, 1) for bit in freq
    ):
        raise PatternError(
            "expected a whole number, a list of 0 and 1, or text like ([0]*3+[1]*58)"
        )
    if len(freq) != num_layers:
        raise PatternError(f"describes {len(freq)} layers, num_layers is {num_layers}")
    return tuple(bit == 1 for bit in freq)


def parse_pattern(text: str) -> list[int]:
    """The list of 0 and 1 that `text` spells; at most `MAX_LAYERS` of them."""
    parser = _Parser(_tokens(text))
    pattern = parser.sum(0)
    if parser.peek() is not None:
        raise PatternError(f"unexpected {parser.peek()!r} in the layer pattern")
    return pattern


def _tokens(text: str) -> list[str]:
    if len(text) > 4 * MAX_LAYERS:
        raise PatternError("the layer pattern is too long")
    tokens = []
    position, text = 0, text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise PatternError(
                f"a layer pattern is lists of 0 and 1, +, * and counts, not {text[position:]!r:.30}"
            )
        tokens.append(match.group(1))
        position = match.end()
    return tokens


class _Parser:
    """Recursive descent over the tokens; every result is bounded."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._next = 0

    def peek(self) -> str | None:
        """The token to come, None at the end."""
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _take(self) -> str:
        token = self.peek()
        if token is None:
            raise PatternError("the layer pattern ends too early")
        self._next += 1
        return token

    def _expect(self, token: str) -> None:
        taken = self._take()
        if taken != token:
            raise PatternError(f"expected {token!r} in the layer pattern, got {taken!r}")

    def _count(self) -> int:
        token = self._take()
        if not token.isdecimal():
            raise PatternError(f"expected a count after * in the layer pattern, got {token!r}")
        return int(token)

    def sum(self, depth: int) -> list[int]:
        """A `sum` of the grammar."""
        if depth > _MAX_DEPTH:
            raise PatternError(f"the layer pattern nests more than {_MAX_DEPTH} brackets")
        pattern = self._product(depth)
        while self.peek() == "+":
            self._take()
            pattern = pattern + self._product(depth)
            _bounded(len(pattern), 1)
        return pattern

    def _product(self, depth: int) -> list[int]:
        token = self.peek()
        count = 1
        if token is not None and token.isdecimal():
            count = self._count()
            self._expect("*")
        pattern = self._factor(depth)
        _bounded(len(pattern), count)
        pattern = pattern * count
        while self.peek() == "*":
            self._take()
            count = self._count()
            _bounded(len(pattern), count)
            pattern = pattern * count
        return pattern

    def _factor(self, depth: int) -> list[int]:
        token = self._take()
        if token == "(":
            pattern = self.sum(depth + 1)
            self._expect(")")
            return pattern
        if token != "[":
            raise PatternError(f"expected a list in the layer pattern, got {token!r}")
        bits: list[int] = []
        while self.peek() != "]":
            if bits:
                self._expect(",")
            bit = self._take()
            if bit not in {"0", "1"}:
                raise PatternError(f"a layer is 0 (dense) or 1 (MoE) in the pattern, got {bit!r}")
            bits.append(int(bit))
        self._take()
        return bits


def _bounded(length: int, count: int) -> None:
    if length * count > MAX_LAYERS:
        raise PatternError(f"the layer pattern has more than {MAX_LAYERS} layers")
