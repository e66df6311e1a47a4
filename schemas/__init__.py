"""The nouns of a search, as frozen pydantic models: no I/O, no imports of our other packages."""
