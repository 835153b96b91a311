"""The page at `/` in a browser: accessible by axe-core's rules at three sizes, dark and light, without a fault.

With GPUWATCH_SCREENSHOTS=FOLDER each state is also kept as a picture, for eyes.
"""

import base64
import os
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.agent.pages import routes
from gpuwatch.http.server import HttpServer
from gpuwatch.model.recent import Recent
from gpuwatch.model.view import View
from tests.agent.axe import axe_script
from tests.agent.test_live_page import Shown
from tests.cli.browser import Page, browser
from tests.cli.look.test_why import hot
from tests.model import views
from tests.waiting import until

pytestmark = pytest.mark.slow  # a browser; test_live_page.py holds what is in the page

SIZES = {"phone": (390, 844), "desk": (1280, 900), "wall": (3840, 2160)}
LOADED = "document.readyState === 'complete' && document.documentElement.clientWidth > 0"
AXE = """axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations.map(
    (each) => `${each.id}: ${each.help}: ${each.nodes.map((node) => node.html.slice(0, 160)).join(" | ")}`))"""


class Busy(Shown):
    """With the last minutes of each GPU."""

    def recent(self) -> Recent:
        view = self.view()
        return hot(view) if view else Recent()


def now(view: View) -> View:
    return replace(view, snapshot=replace(view.snapshot, at=time.time()))


def violations(tab: Page) -> list[str]:
    """What axe-core finds. It is put in by the debugger, which the page's policy does not bind."""
    tab.value(axe_script())
    found = tab.call("Runtime.evaluate", expression=AXE, awaitPromise=True, returnByValue=True)
    return found["result"]["value"]


def keep(tab: Page, name: str) -> None:
    folder = os.environ.get("GPUWATCH_SCREENSHOTS")
    if folder:
        picture = tab.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        Path(folder, f"{name}.png").write_bytes(base64.b64decode(picture))


def test_the_page_is_accessible_and_fits_at_three_sizes_dark_and_light():
    agent = Busy()
    server = HttpServer(routes(agent), listen="127.0.0.1:0")
    server.start()
    try:
        with browser() as tab:
            for state, view in {"healthy": views.healthy(), "failing": views.failing(), "none": None}.items():
                if view is not None:
                    agent.put(now(view))
                else:
                    agent._view = None
                for size, (width, height) in SIZES.items():
                    phone = size == "phone"
                    tab.call(
                        "Emulation.setDeviceMetricsOverride",
                        width=width,
                        height=height,
                        deviceScaleFactor=1,
                        mobile=phone,
                    )
                    for scheme in ("light", "dark"):
                        tab.media(prefers_color_scheme=scheme)
                        tab.call("Page.navigate", url=f"http://127.0.0.1:{server.port}/")
                        until(lambda: tab.value(LOADED), 30)
                        where = f"{state} {size} {scheme}"
                        keep(tab, where.replace(" ", "-"))
                        assert violations(tab) == [], where
                        assert tab.value(f"document.documentElement.scrollWidth <= {width}"), where
            assert tab.troubles == []
    finally:
        server.stop()


def test_axe_finds_what_is_wrong():
    """It would find a missing name or too little contrast, so that an empty answer above means something."""
    with browser() as tab:
        tab.value("document.body.innerHTML = \"<main><button></button><p style='color:#ccc'>pale</p></main>\"")
        found = " ".join(violations(tab))
        assert "button-name" in found
        assert "color-contrast" in found
