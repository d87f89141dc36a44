"""One module for each command; here the library is composed, and nothing else is done."""
