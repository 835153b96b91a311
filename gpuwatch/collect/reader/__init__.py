"""The child process that talks to the driver, and the agent's end of its pipe."""
