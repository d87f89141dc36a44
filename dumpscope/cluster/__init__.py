"""Scans whose files are read by the workers of a dask cluster."""
