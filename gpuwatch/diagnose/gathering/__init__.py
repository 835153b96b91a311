"""How facts are gathered: all sections at the same time and within a time limit, by a process that may be abandoned."""
