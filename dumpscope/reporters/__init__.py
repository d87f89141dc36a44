"""One module for each kind of report; `tables` is the only column dictionary."""
