"""The event store and the audit log on disk."""
