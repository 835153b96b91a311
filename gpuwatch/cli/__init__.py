"""The command line: one layer on top of everything. Only this folder imports click and rich."""
