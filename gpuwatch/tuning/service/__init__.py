"""The tuner process: reads Views, runs the cycle, hands orders to the actuation, keeps its state."""
