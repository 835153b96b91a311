"""Commands that show the current View: `status`, `get`, `describe`, `top`, `events`."""
