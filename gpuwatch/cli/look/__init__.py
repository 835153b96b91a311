"""Commands that show the current View: `status`, `get`, `describe`, `why`, `top`, `events`."""
