"""The steps of a night: read the targets, find its slot, judge each target, report."""
