"""The remediator process: reads the View and its Node, asks `planning`, writes, and records each write first."""
