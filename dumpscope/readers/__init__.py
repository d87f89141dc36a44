"""One module for each format, with its byte table, and what helps them."""
