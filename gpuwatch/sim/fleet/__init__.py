"""Many nodes with their remediators at one API server, and a check of every write."""
