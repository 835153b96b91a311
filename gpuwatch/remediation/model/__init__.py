"""The nouns of a remediation plan and of its status."""
