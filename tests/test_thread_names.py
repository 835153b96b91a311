"""A subclass of Thread uses no name that Thread has for itself in any Python from 3.11 to 3.14.

Such a name works on the Python it was written with, and the thread does not start on another.
"""

import ast
import threading
from pathlib import Path

import pytest

GPUWATCH = Path(__file__).resolve().parents[1] / "gpuwatch"
MEANT = {"run", "start", "join", "name", "daemon", "__init__"}
OF_OTHER_VERSIONS = {"_handle", "_os_thread_handle", "_context", "_tstate_lock", "_is_stopped", "_join_os_thread"}
INTERNAL = (set(dir(threading.Thread())) | OF_OTHER_VERSIONS) - MEANT


def threads() -> list[tuple[str, ast.ClassDef]]:
    """Every class of gpuwatch that names Thread as a base."""
    return [
        (f"{path.relative_to(GPUWATCH)}:{node.name}", node)
        for path in sorted(GPUWATCH.rglob("*.py"))
        if "Thread" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Thread") for base in node.bases)
    ]


def own_names(thread: ast.ClassDef) -> set[str]:
    """Its methods and what it assigns to itself."""
    written = (each for each in ast.walk(thread) if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store))
    assigned = {each.attr for each in written if ast.unparse(each.value) == "self"}
    return assigned | {each.name for each in thread.body if isinstance(each, ast.FunctionDef)}


THREADS = threads()


def test_the_threads_are_found():
    assert {"collect/reader/supervisor.py:Supervisor", "agent/agent.py:Periodic"} <= {name for name, _ in THREADS}


@pytest.mark.parametrize("thread", [node for _, node in THREADS], ids=[name for name, _ in THREADS])
def test_a_thread_has_no_name_of_threads_own(thread):
    assert own_names(thread) & INTERNAL == set()
