"""One module for each API key. Its docstring gives the purpose, the receiver and the error codes."""
