"""`python -m dashboards.history`: serve the history until Ctrl-C, to look at it or to try out queries."""

import contextlib
import signal

from dashboards.history.blocks import get
from dashboards.history.fleet import BEGIN, END
from dashboards.history.server import prometheus


def main() -> None:
    """Build where need be, and serve."""
    with prometheus(get()) as url, contextlib.suppress(KeyboardInterrupt):
        print(f"{url} has the time from {BEGIN:.0f} to {END:.0f}; Ctrl-C ends it", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
