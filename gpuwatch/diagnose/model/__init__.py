"""The nouns of a diagnosis: what a cluster is, what a check answers."""
