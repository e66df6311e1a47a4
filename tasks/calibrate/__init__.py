"""Fitting the few factors between published and achieved rates from measured runs."""
