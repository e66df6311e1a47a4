"""The steps of a search, each a function of its inputs; none of them writes the log."""
