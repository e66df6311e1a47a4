"""The nouns of a search, as frozen pydantic models. Nothing here does I/O or imports our other packages."""
