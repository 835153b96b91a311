"""What DCGM's own quick diagnosis says, where its command is installed."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from gpuwatch.diagnose.active.parent import has_gone
from gpuwatch.model.errors import GpuwatchError

COMMAND = "dcgmi"
ARGUMENTS = ("diag", "-r", "1", "-j")
MOST_BYTES = 4 << 20
"""Of what it says."""


def is_installed() -> bool:
    """Whether there is a dcgmi to ask."""
    return shutil.which(COMMAND) is not None


def failures(seconds: float) -> dict[str, str]:
    """Run level 1 (software and deployment, seconds); plugin -> what it found fault with.

    Raises:
        GpuwatchError: it could not be run, has not ended in time, or says nothing that can be understood.
    """
    what = f"{COMMAND} {' '.join(ARGUMENTS)} gave no result"
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as trouble:
        try:
            process = subprocess.Popen((COMMAND, *ARGUMENTS), stdin=subprocess.DEVNULL, stdout=out, stderr=trouble)
            status = process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            has_gone(process)
            raise GpuwatchError(what, f"no answer within {seconds:.0f} s") from error
        except OSError as error:
            raise GpuwatchError(what, str(error)) from error
        text, errors = _told(out), _told(trouble)
    found = parsed(text)
    if found is None:
        words = f"{text}\n{errors}".split("\n")
        said = next((line.strip() for line in words if line.strip(" {}\t\r")), f"exit status {status}")
        raise GpuwatchError(what, said[:300], "is nv-hostengine running? systemctl status nvidia-dcgm")
    return found


def _told(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(MOST_BYTES).decode(errors="replace")


def parsed(text: str) -> dict[str, str] | None:
    """Plugins that failed, of the JSON of DCGM 2 to 4; None if it names no plugin at all.

    There may be warnings before the document, and its upper levels differ between the versions.
    """
    try:
        document = json.JSONDecoder().raw_decode(text[text.index("{") :])[0]
    except (ValueError, RecursionError):
        return None
    tests = list(_tests(document, depth=6))
    if not tests:
        return None
    failed: dict[str, str] = {}
    for test in tests:
        words = [_words(result) for result in _results(test) if _is_failure(result)]
        if words:
            failed[str(test["name"])] = "; ".join(dict.fromkeys(words))
    return failed


def _tests(node: Any, depth: int) -> Iterator[dict[str, Any]]:
    """Every object with a name and results, wherever it stands."""
    if depth == 0:
        return
    if isinstance(node, dict):
        if "name" in node and "results" in node:
            yield node
            return
        for value in node.values():
            yield from _tests(value, depth - 1)
    elif isinstance(node, list):
        for value in node:
            yield from _tests(value, depth - 1)


def _results(test: dict[str, Any]) -> list[dict[str, Any]]:
    results = test["results"]
    return [r for r in results if isinstance(r, dict)] if isinstance(results, list) else []


def _is_failure(result: dict[str, Any]) -> bool:
    return str(result.get("status", "")).strip().lower() in ("fail", "failed")


def _words(result: dict[str, Any]) -> str:
    """`GPU 3: text`; DCGM 4 names an entity, older ones list GPUs in a text."""
    where = result.get("entity_id", result.get("gpu_id", result.get("gpu_ids")))
    warnings = result.get("warnings", result.get("info", "failed"))
    texts = [w.get("warning", w) if isinstance(w, dict) else w for w in _as_list(warnings)]
    said = ", ".join(str(t) for t in texts) or "failed"
    return said if where is None else f"GPU {where}: {said}"


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
