"""A pytest plugin that tells, as JSON, how each test ended and from which file a module was loaded.

WITNESS names the file to write, WITNESS_MODULES the modules, separated by commas.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

failures: list[list[str]] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Note when a test failed, and by which exception."""
    report = yield
    if report.failed and call.excinfo is not None:
        kinds = ",".join(kind.__name__ for kind in call.excinfo.type.__mro__)
        failures.append([item.nodeid, call.when, kinds])
    return report


def pytest_sessionfinish(session: Any) -> None:
    """Write it down."""
    names = os.environ["WITNESS_MODULES"].split(",")
    loaded = {name: getattr(sys.modules.get(name), "__file__", None) for name in names}
    told = {"collected": session.testscollected, "failures": failures, "loaded": loaded}
    Path(os.environ["WITNESS"]).write_text(json.dumps(told))
