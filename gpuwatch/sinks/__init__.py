"""The world out: metrics, HTTP, files."""
