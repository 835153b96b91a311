"""The nouns of right-sizing: usage records and MIG profiles."""
