"""The table of checks, a file per stage or part of one, and what several of them share: pure functions of facts."""
