"""Learns usage from the agent's Views, and keeps it over restarts."""
