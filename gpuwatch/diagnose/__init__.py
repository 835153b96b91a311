"""Why a node does not work, and what to do next: facts are gathered once, then judged by one table of checks."""
