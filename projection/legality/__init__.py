"""Legality: the normal form of a trial, the rules, the legal axes and the space of legal trials."""

from projection.legality.axes import derive_axes
from projection.legality.check import check
from projection.legality.neighbours import neighbours
from projection.legality.normal_form import as_request, normalise, settled, short_request
from projection.legality.space import LegalSpace

__all__ = [
    "LegalSpace",
    "as_request",
    "check",
    "derive_axes",
    "neighbours",
    "normalise",
    "settled",
    "short_request",
]
