"""One cycle of the tuner: View, consents and memory in, orders and status out. No I/O."""
