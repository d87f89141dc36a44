"""Measuring tensors: one pass, exact counts, positions, the optional kernel's twin."""
