"""The nouns of tuning: orders, their values, the status."""
