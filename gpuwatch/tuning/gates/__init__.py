"""May this GPU be tuned now? Consent, faults, owners, other controllers, rate limit. No I/O."""
