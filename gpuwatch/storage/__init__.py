"""The event store, the audit log and versioned files on disk. It imports host/ (paths beneath a root) and the model."""
