"""Why does this node not work, and what do I do now: facts are gathered once, then judged by one table of checks."""
