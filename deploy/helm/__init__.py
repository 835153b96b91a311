"""The Helm chart, and what writes the parts of it that say again what another file says."""
