"""The command line; click and rich live here only."""
