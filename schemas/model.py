"""The base of all our own formats: frozen, and closed to keys it does not know."""

from pydantic import BaseModel, ConfigDict


class FrozenModel(BaseModel):
    """A value: immutable, compared by content, refusing unknown keys and non-finite numbers."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        # Where a number in a field of any type is not finite, writers refuse it; never null.
        ser_json_inf_nan="constants",
        protected_namespaces=(),
    )
