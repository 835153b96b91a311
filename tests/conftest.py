"""For all tests: hypothesis tries the same examples every time unless it is told otherwise; ctrl-C works."""

import logging
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.seeds import examples

# A deadline or a health check fails on a busy machine, not on a wrong program.
steady = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fixed", derandomize=True, database=None, max_examples=examples(100), **steady)
settings.register_profile("random", **steady)  # make test-slow: what it finds becomes an @example
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

pytest_plugins = ["tests.leftovers", "tests.memory", "tests.order", "tests.timings"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as background jobs inherit it, and hand it on
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def no_logging_is_left() -> Iterator[None]:
    """A command that ran in this process has set the level of all logs; the next test expects what was there before."""
    loggers = [logging.getLogger(), logging.getLogger("gpuwatch.audit")]
    before = [(logger, logger.level, logger.propagate, list(logger.handlers)) for logger in loggers]
    yield
    for logger, level, propagate, handlers in before:
        logger.setLevel(level)
        logger.propagate = propagate
        for handler in logger.handlers[:]:
            if handler not in handlers and type(handler) is logging.StreamHandler:  # pytest has some of its own
                logger.removeHandler(handler)
