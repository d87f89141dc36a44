"""Measures dumpscope against what the machine allows (`make bench`)."""
