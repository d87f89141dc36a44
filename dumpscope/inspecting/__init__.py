"""One file or operator seen from near, and written out as arrays."""
