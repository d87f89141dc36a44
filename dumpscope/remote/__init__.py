"""Dumps that lie where only fsspec reaches: object stores, sftp servers and the like."""
