"""Many nodes with their remediators before one API server, and a check of every write."""
