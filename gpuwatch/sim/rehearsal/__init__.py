"""A remediation policy tried on an imagined cluster."""
