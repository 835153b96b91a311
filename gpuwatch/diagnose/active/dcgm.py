"""The result of DCGM's own quick diagnosis, where its command is installed."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

from gpuwatch.diagnose.active.parent import terminated
from gpuwatch.model.errors import GpuwatchError

COMMAND = "dcgmi"
ARGUMENTS = ("diag", "-r", "1", "-j")
MOST_BYTES = 4 << 20
"""Limit of its output."""


def is_installed() -> bool:
    """Whether dcgmi is on the path."""
    return shutil.which(COMMAND) is not None


def failures(seconds: float) -> dict[str, str]:
    """Run level 1 (software and deployment, seconds); plugin -> its warnings, of those that failed.

    Raises:
        GpuwatchError: it could not be run, has not ended in time, or printed no result.
    """
    what = f"{COMMAND} {' '.join(ARGUMENTS)} gave no result"
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen((COMMAND, *ARGUMENTS), stdin=subprocess.DEVNULL, stdout=output, stderr=errors)
            status = process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            terminated(process)
            raise GpuwatchError(what, f"no answer within {seconds:.0f} s") from error
        except OSError as error:
            raise GpuwatchError(what, str(error)) from error
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read(MOST_BYTES).decode(errors="replace"))
    found = parsed(texts[0])
    if found is None:
        lines = "\n".join(texts).split("\n")
        first = next((line.strip() for line in lines if line.strip(" {}\t\r")), f"exit status {status}")
        raise GpuwatchError(what, first[:300], "is nv-hostengine running? systemctl status nvidia-dcgm")
    return found


def parsed(text: str) -> dict[str, str] | None:
    """Plugins that failed, of the JSON of DCGM 2 to 4; None if it names no plugin at all.

    There may be warnings before the document, and its upper levels differ between the versions.
    """
    try:
        document = json.JSONDecoder().raw_decode(text[text.index("{") :])[0]
    except (ValueError, RecursionError):
        return None
    tests = list(_tests(document, depth=6))
    failed: dict[str, str] = {}
    for test in tests:
        results = test["results"] if isinstance(test["results"], list) else []
        wrong = [each for each in results if isinstance(each, dict)]
        wrong = [each for each in wrong if str(each.get("status", "")).strip().lower() in ("fail", "failed")]
        if wrong:
            failed[str(test["name"])] = "; ".join(dict.fromkeys(map(_failure_text, wrong)))
    return failed if tests else None


def _tests(node: Any, depth: int) -> Iterator[dict[str, Any]]:
    """Every object with a name and results, wherever it stands."""
    if depth and isinstance(node, dict) and "name" in node and "results" in node:
        yield node
    elif depth and isinstance(node, dict | list):
        for value in node.values() if isinstance(node, dict) else node:
            yield from _tests(value, depth - 1)


def _failure_text(result: dict[str, Any]) -> str:
    """`GPU 3: text`; DCGM 4 names an entity, older ones list GPUs in a text."""
    where = result.get("entity_id", result.get("gpu_id", result.get("gpu_ids")))
    warnings = result.get("warnings", result.get("info", "failed"))
    each = warnings if isinstance(warnings, list) else [warnings]
    text = ", ".join(str(w.get("warning", w) if isinstance(w, dict) else w) for w in each) or "failed"
    return text if where is None else f"GPU {where}: {text}"
