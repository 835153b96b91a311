"""What `diagnose` asks of the API server, and how it reads the answers."""
