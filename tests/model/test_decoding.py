"""Types are learned by one thread at a time, and every type that msgspec gets was learned so."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import gpuwatch

TYPED = re.compile(r"msgspec\.(?:json\.|msgpack\.)?(decode|Decoder|convert)")
PLACE = {"decode": 1, "Decoder": 0, "convert": 1}
"""Where the type stands among a call's arguments."""

RACE = """
import sys, threading
import msgspec
from gpuwatch.model.decoding import prepared

sys.setswitchinterval(1e-6)

def race():
    inner = msgspec.defstruct("Inner", [(f"a{number}", int | None, None) for number in range(30)])
    outer = msgspec.defstruct("Outer", [(f"b{number}", list[inner] | None, None) for number in range(30)])
    barrier, found = threading.Barrier(4), []

    def read(kind):
        barrier.wait()
        found.append(msgspec.json.decode(b'{"b3": [{"a1": 3}]}', type=prepared(kind)))

    threads = [threading.Thread(target=read, args=(outer,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.b3[0].a1 for each in found] == [3] * 4

for _ in range(200):
    race()
"""


def test_threads_that_decode_into_a_new_class_at_once_all_get_it():
    """Without `prepared` the interpreter dies in one of the first rounds."""
    subprocess.run([sys.executable, "-c", RACE], check=True, timeout=120)


def test_every_type_that_msgspec_gets_is_prepared():
    bare = []
    for path in Path(gpuwatch.__file__).parent.rglob("*.py"):
        calls = [each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.Call)]
        for call in calls if path.stem != "decoding" else ():
            if found := TYPED.fullmatch(ast.unparse(call.func)):
                types = [each.value for each in call.keywords if each.arg == "type"]
                types += call.args[PLACE[found[1]] :][:1]
                bare += [f"{path}:{call.lineno}" for each in types if not ast.unparse(each).startswith("prepared(")]
    assert not bare
