"""For all tests: in CI hypothesis tries the same examples every time, elsewhere it looks for new ones; ctrl-C works."""

import os
import signal

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as background jobs inherit it, and hand it on
    signal.signal(signal.SIGINT, signal.default_int_handler)
