"""The HTTP server: limits, TLS, users, unix socket. It is independent of GPUs."""
