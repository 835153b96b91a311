"""Builds the fake `libnvidia-ml.so.1`: generates what nvml.h dictates, compiles it, and keeps it by content.

A *profile* is a driver whose set of exported symbols the library copies (`symbols.txt`), so that a client meets
the same missing functions as on that driver; `all` exports every function of nvml.h, however new. The header
comes from the PyPI package `nvidia-nvml-dev`, and the compiler checks every hand-written function against it.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gpuwatch.model.errors import GpuwatchError
from tests.fakes.libnvml import layout

PROFILES = ("535", "550", "570", "575", "580", "590", "all")
LIBRARY = "libnvidia-ml.so.1"
_HERE = Path(__file__).parent
_SOURCES = sorted((_HERE / "src").glob("*.[ch]"))
# -O0: what counts is that the first test does not wait; a name that nvml.h does not declare is an error.
_FLAGS = ("-std=gnu11", "-O0", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Werror=missing-prototypes",
          "-Wno-deprecated-declarations")  # fmt: skip
_PROTOTYPE = re.compile(r"nvmlReturn_t\s+DECLDIR\s+(nvml\w+)\s*\(([^)]*)\)\s*;")
_NEWEST = re.compile(r"#define\s+(nvml\w+)\s+(nvml\w+_v\d+)\s*$", re.MULTILINE)


KNOBS = ("power_limit", "locked_clocks")
SETTERS = {
    "nvmlDeviceSetPowerManagementLimit": ("0", "limit"),
    "nvmlDeviceSetPowerManagementLimit_v2": ("0", "powerValue->powerValueMw"),
    "nvmlDeviceSetGpuLockedClocks": ("1", "maxGpuClockMHz"),
    "nvmlDeviceResetGpuLockedClocks": ("1", "ABSENT"),
}
"""Functions whose calls are kept: the knob's place in KNOBS, and what it is set to in the words of nvml.h."""


class Function(NamedTuple):
    """A prototype of nvml.h: its name and its parameters as the header spells them."""

    name: str
    parameters: tuple[str, ...]

    @property
    def arguments(self) -> tuple[str, ...]:
        """The parameters' names."""
        return tuple(re.findall(r"\w+", parameter)[-1] for parameter in self.parameters)

    @property
    def types(self) -> tuple[str, ...]:
        """The parameters' types, without spaces."""
        return tuple(re.sub(r"\w+$|\s", "", parameter.strip()) for parameter in self.parameters)


def header() -> Path:
    """The installed nvml.h; GpuwatchError when `nvidia-nvml-dev` is absent."""
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        for found in sorted(Path(root).glob("*/include/nvml.h")):
            return found
    raise GpuwatchError("cannot build the fake NVML", "nvml.h is not installed", "pip install nvidia-nvml-dev")


@cache
def functions() -> tuple[Function, ...]:
    """Every function that nvml.h declares, sorted; the place in it, plus one, is the index of its counters."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", header().read_text(encoding="utf-8"), flags=re.DOTALL)
    found = {}
    for name, parameters in _PROTOTYPE.findall(text):
        parts = tuple(" ".join(part.split()) for part in parameters.split(","))
        found[name] = Function(name, () if parts == ("void",) else parts)
    return tuple(found[name] for name in sorted(found))


def symbols(profile: str) -> frozenset[str]:
    """The names that the profile's library exports."""
    known = {function.name for function in functions()} | {"nvmlErrorString"}
    if profile == "all":
        return frozenset(known)
    lines = (_HERE / "symbols.txt").read_text(encoding="ascii").splitlines()
    rows = (line.split() for line in lines if not line.startswith("#"))
    return frozenset(name for since, name in rows if int(since) <= int(profile)) & known


def _wrapper(function: Function) -> str:
    name, arguments = function.name, ", ".join(function.arguments)
    gpu = "NO_GPU"
    if name.startswith("nvmlDeviceGetHandleByIndex"):
        gpu = "fake_gpu_at(index)"
    elif function.types[:1] == ("nvmlDevice_t",):
        gpu = f"fake_gpu_of({function.arguments[0]})"
    kept = f"    fake_keep({gpu}, {', '.join(SETTERS[name])}, result);\n" if name in SETTERS else ""
    return (
        f"nvmlReturn_t {name}({', '.join(function.parameters) or 'void'}) {{\n    nvmlReturn_t result;\n"
        f"    if (fake_enter(CALL_{name}, {gpu}, &result)) result = fake_{name}({arguments});\n"
        f"{kept}    fake_leave(CALL_{name});\n    return result;\n}}"
    )


def _weak(function: Function, newest: dict[str, Function]) -> str:
    target = newest.get(function.name)
    body = "return NVML_ERROR_NOT_SUPPORTED;"
    if target and target.types == function.types:  # the old name of the same function
        body = f"return fake_{target.name}({', '.join(function.arguments)});"
    else:
        body = "".join(f"(void){argument}; " for argument in function.arguments) + body
    parameters = ", ".join(function.parameters) or "void"
    return f"__attribute__((weak)) nvmlReturn_t fake_{function.name}({parameters}) {{ {body} }}"


def _calls_h(magic: str) -> Iterator[str]:
    yield f"#define LAYOUT_MAGIC 0x{magic}ull"
    calls = ",\n".join(f"    CALL_{f.name} = {i}" for i, f in enumerate(functions(), start=1))
    yield f"enum call_index {{\n{calls}\n}};"
    for function in functions():
        yield f"nvmlReturn_t fake_{function.name}({', '.join(function.parameters) or 'void'});"


def _exports_c() -> Iterator[str]:
    by_name = {function.name: function for function in functions()}
    names = _NEWEST.findall(header().read_text(encoding="utf-8"))
    newest = {old: by_name[new] for old, new in names if new in by_name}
    yield '#include "fake.h"'
    for function in functions():
        yield _weak(function, newest)
        yield _wrapper(function)


def magic() -> int:
    """A hash of the control file's layout and of the functions' numbering: file and library must agree on it."""
    text = "\n".join(layout.c_header()) + "\n".join(function.name for function in functions())
    return int(hashlib.sha256(text.encode()).hexdigest()[:16], 16)


def _generate(target: Path, profile: str) -> None:
    (target / "control.h").write_text("\n".join(layout.c_header()), encoding="ascii")
    (target / "calls.h").write_text("\n".join(_calls_h(f"{magic():016x}")), encoding="ascii")
    (target / "exports.c").write_text("\n".join(_exports_c()), encoding="ascii")
    exported = "; ".join(sorted(symbols(profile)))
    (target / "exports.map").write_text(f"{{ global: {exported}; local: *; }};", encoding="ascii")


def _compile(work: Path, include: Path) -> None:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise GpuwatchError("cannot build the fake NVML", "no C compiler", "install gcc, or name one in CC")
    sources = [str(path) for path in _SOURCES if path.suffix == ".c"]
    command = [compiler, *_FLAGS, f"-I{work}", f"-I{_HERE / 'src'}", f"-I{include}", f"-Wl,-soname,{LIBRARY}",
               f"-Wl,--version-script={work / 'exports.map'}", "-o", str(work / LIBRARY),
               str(work / "exports.c"), *sources, "-lm"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise GpuwatchError("cannot build the fake NVML", done.stderr[-4000:], "read the compiler's message")


def build(profile: str = "580", cache_dir: Path | None = None) -> Path:
    """The path of the profile's `libnvidia-ml.so.1`, compiled at the first call (under a second) and then kept.

    `profile` is one of PROFILES. `cache_dir` defaults to `$XDG_CACHE_HOME/gpuwatch/libnvml`. Safe to call from
    several processes at once. Raises GpuwatchError without a compiler or nvml.h.
    """
    if profile not in PROFILES:
        raise GpuwatchError(f"no driver profile {profile!r}", f"there are {', '.join(PROFILES)}")
    base = cache_dir or Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gpuwatch/libnvml"
    inputs = [header(), _HERE / "symbols.txt", _HERE / "library.py", _HERE / "layout.py", *_SOURCES]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()[:16]
    library = base / f"{profile}-{digest}" / LIBRARY
    if not library.exists():
        base.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=base) as work:
            _generate(Path(work), profile)
            _compile(Path(work), header().parent)
            library.parent.mkdir(exist_ok=True)
            (Path(work) / LIBRARY).replace(library)
    return library
