"""Builds the fake `libcuda.so.1` and keeps it by content; cuda.h checks every function's prototype.

The header comes from the PyPI package `nvidia-cuda-runtime`.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from gpuwatch.model.errors import GpuwatchError

LIBRARY = "libcuda.so.1"
_SOURCE = Path(__file__).parent / "src"
# -O2: the kernels run over megabytes; a name that cuda.h does not declare is an error.
_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror=missing-prototypes")
_EXPORTS = "{ global: cu*; local: *; };"


def header() -> Path:
    """The installed cuda.h.

    Raises:
        GpuwatchError: `nvidia-cuda-runtime` is not installed.
    """
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        for found in sorted(Path(root).glob("*/include/cuda.h")):
            return found
    raise GpuwatchError("cannot build the fake CUDA", "cuda.h is not installed", "pip install nvidia-cuda-runtime")


def build(cache_dir: Path | None = None) -> Path:
    """The path of `libcuda.so.1`, compiled at the first call and then kept, in `$XDG_CACHE_HOME/gpuwatch/libcuda`
    unless told otherwise. Safe to call from several processes at once.

    Raises:
        GpuwatchError: there is no compiler or no cuda.h.
    """
    base = cache_dir or Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gpuwatch/libcuda"
    inputs = [header(), Path(__file__), *sorted(_SOURCE.glob("*.[ch]"))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()[:16]
    library = base / digest / LIBRARY
    if not library.exists():
        base.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=base) as work:
            built = _compiled(Path(work))
            library.parent.mkdir(exist_ok=True)
            built.replace(library)
    return library


def _compiled(work: Path) -> Path:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise GpuwatchError("cannot build the fake CUDA", "no C compiler", "install gcc, or name one in CC")
    (work / "exports.map").write_text(_EXPORTS, encoding="ascii")
    sources = [str(path) for path in sorted(_SOURCE.glob("*.c"))]
    command = [compiler, *_FLAGS, f"-I{header().parent}", f"-Wl,-soname,{LIBRARY}",
               f"-Wl,--version-script={work / 'exports.map'}", "-o", str(work / LIBRARY), *sources]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise GpuwatchError("cannot build the fake CUDA", done.stderr[-4000:], "read the compiler's message")
    return work / LIBRARY
