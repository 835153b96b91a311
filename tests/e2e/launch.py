"""Runs an agent with a configuration and a backend that no command line gives: `python -m tests.e2e.launch JSON`.

So a test can host the simulated node itself, at a speed of its own, and measure the agent apart from it.
"""

import sys

import msgspec

from gpuwatch.agent.agent import Agent
from gpuwatch.config import Backend, Config


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What to run."""

    config: Config
    backend: Backend


def main() -> None:
    """Run it until SIGTERM."""
    launch = msgspec.json.decode(sys.argv[1], type=Launch)
    Agent(launch.config, launch.backend).run()


if __name__ == "__main__":
    main()
