"""What is wrong with a value, in the words of our own messages rather than the validator's."""

from collections.abc import Mapping
from typing import Any, Final

_EXPECTED: Final = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
}
_BOUNDS: Final = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


def problem(error: Mapping[str, Any]) -> str:
    """One validation error as `expected …`, without the value that was given.

    `error` is one of `ValidationError.errors()`. A kind without words of ours keeps the
    validator's, less its prefix.
    """
    kind, context = error["type"], error.get("ctx", {})
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}"
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        return f"expected {words} {_number(context[key])}"
    if kind == "literal_error":
        return f"expected one of {context['expected']}".replace(" or ", ", ")
    if kind == "missing":
        return "must be set"
    message: str = error["msg"]
    return message.removeprefix("Value error, ")


def _number(bound: float) -> str:
    """A bound as a person writes it."""
    return f"{bound:,.0f}".replace(",", "") if bound == int(bound) else f"{bound:g}"
