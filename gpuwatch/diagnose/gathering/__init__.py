"""How facts are gathered: all sections at the same time, in time, by a process that nobody waits for."""
