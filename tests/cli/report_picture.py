"""Takes the picture of the report that the documentation shows: `python -m tests.cli.report_picture`."""

import base64
import re
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.cli.browser import browser
from tests.cli.commands import advised
from tests.cli.recommend import advice

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "recommend-report.png"
HEIGHT = 1310


def main() -> None:
    """Everything there is to say of names as people have them, down to the first cards."""
    with TemporaryDirectory() as place, browser() as page:
        file = Path(place) / "report.html"
        report = advised(advice.usual(), "recommend", "-o", "html").stdout
        file.write_text(re.sub(r"agent /\S+", "agent /run/gpuwatch/agent.sock", report))
        page.open(file, width=1120)
        clip = {"x": 0, "y": 0, "width": 1120, "height": HEIGHT, "scale": 1}
        taken = page.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)["data"]
    PICTURE.write_bytes(base64.b64decode(taken))
    if shutil.which("pngquant"):
        subprocess.run(["pngquant", "--force", "--strip", f"--output={PICTURE}", "96", str(PICTURE)], check=True)
    print(PICTURE, PICTURE.stat().st_size // 1024, "KiB")


if __name__ == "__main__":
    main()
