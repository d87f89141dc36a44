"""The way of a bad value from its origin: what is shown of it, and where."""
