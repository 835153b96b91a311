"""The HTTP server: limits, TLS, users, unix socket. It knows nothing of GPUs."""
