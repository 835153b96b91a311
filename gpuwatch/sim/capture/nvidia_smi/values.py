"""Values as nvidia-smi prints them, converted back to NVML's units; words in their place are errors of NVML."""

import re
from collections.abc import Callable, Mapping

import pynvml


class NoValue(Exception):
    """nvidia-smi printed no value; `code` is the nvmlReturn that makes it do so."""

    def __init__(self, code: int = pynvml.NVML_ERROR_NOT_SUPPORTED) -> None:
        super().__init__(code)
        self.code = code


WORDS = {
    "": pynvml.NVML_ERROR_NOT_SUPPORTED,
    "n/a": pynvml.NVML_ERROR_NOT_SUPPORTED,
    "not supported": pynvml.NVML_ERROR_NOT_SUPPORTED,
    "not available": pynvml.NVML_ERROR_NOT_SUPPORTED,
    "not applicable": pynvml.NVML_ERROR_NOT_SUPPORTED,
    "function not found": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    "requested functionality has been deprecated": pynvml.NVML_ERROR_DEPRECATED,
    "deprecated": pynvml.NVML_ERROR_DEPRECATED,
    "insufficient permissions": pynvml.NVML_ERROR_NO_PERMISSION,
    "no permission": pynvml.NVML_ERROR_NO_PERMISSION,
    "gpu is lost": pynvml.NVML_ERROR_GPU_IS_LOST,
    "gpu requires re": pynvml.NVML_ERROR_RESET_REQUIRED,  # reset, restart
    "unknown": pynvml.NVML_ERROR_UNKNOWN,
    "err": pynvml.NVML_ERROR_UNKNOWN,
    "timeout": pynvml.NVML_ERROR_TIMEOUT,
}
"""Beginning of a printed word -> nvmlReturn. nvidia-smi prints nvmlErrorString, in brackets or not."""

_NOTE = re.compile(r"(?<!\s)\s+\[deprecated\b[^\]]{0,200}\]?$", re.IGNORECASE)
"""`610.43.02 [Deprecated; will be removed in CUDA 14.0. Use KMD Version instead]`"""

_NUMBER = re.compile(r"([-+]?\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-z%/]*)")
_MEMORY = {"b": 1, "kib": 1 << 10, "kb": 1 << 10, "gib": 1 << 30, "gb": 1 << 30}
_POWER = {"mw": 1.0, "kw": 1e6}
_TIME = {"ns": 1.0, "ms": 1e6, "s": 1e9}


def refuse_words(printed: str) -> str:
    """The value without surrounding space and without a note on deprecation.

    Raises:
        NoValue: it is one of WORDS.
    """
    value = _NOTE.sub("", printed.strip())
    word = value.strip("[]").strip().lower()
    for start, code in WORDS.items():
        if word == start or (len(start) > 3 and word.startswith(start)) or (start == "err" and word == "err!"):
            raise NoValue(code)
    return value


def _quantity(printed: str) -> tuple[float, str]:
    match = _NUMBER.match(printed)
    if match is None:
        raise NoValue(pynvml.NVML_ERROR_UNKNOWN)
    return float(match[1]), match[2].lower()


def integer(printed: str) -> int:
    """The first number, whatever the unit: `16x`, `2560 bank(s)`, `345 MHz`, `41 C`, `0 %`."""
    match = _NUMBER.match(printed)
    if match is None:
        raise NoValue(pynvml.NVML_ERROR_UNKNOWN)
    return round(float(match[1])) if "." in match[1] else int(match[1])


def count(printed: str) -> int:
    """A number that cannot be negative."""
    number = integer(printed)
    if number < 0:
        raise NoValue(pynvml.NVML_ERROR_UNKNOWN)
    return number


def percentage(printed: str) -> int:
    """A share in percent, as NVML states it."""
    return min(count(printed), 0xFFFF)


def hexadecimal(printed: str) -> int:
    """`0x233010DE`."""
    try:
        return int(printed[:18], 16)
    except ValueError:
        raise NoValue(pynvml.NVML_ERROR_UNKNOWN) from None


def memory(printed: str) -> int:
    """Bytes; `MB` of old drivers means MiB."""
    number, unit = _quantity(printed)
    return round(number * _MEMORY.get(unit, 1 << 20))


def milliwatts(printed: str) -> int:
    """Power in mW."""
    number, unit = _quantity(printed)
    return round(number * _POWER.get(unit, 1e3))


def nanoseconds(printed: str) -> int:
    """A duration, printed in µs."""
    number, unit = _quantity(printed)
    return round(number * _TIME.get(unit, 1e3))


def performance_state(printed: str) -> int:
    """`P8`."""
    return count(printed.lstrip("Pp"))


def plain(printed: str) -> str:
    """Words as they are."""
    return printed


def flag(printed: str) -> int:
    """1 for what is on, yes, active or pending; 0 for its opposite."""
    word = printed.strip().lower()
    if word in ("enabled", "yes", "active", "true", "on", "pending", "1"):
        return 1
    if word in ("disabled", "no", "not active", "false", "off", "none", "0"):
        return 0
    raise NoValue(pynvml.NVML_ERROR_UNKNOWN)


def one_of(codes: Mapping[str, int], otherwise: int | None = None) -> Callable[[str], int]:
    """Words that stand for an enumeration; letters and digits count, case and punctuation do not."""
    known = {_normalized(word): code for word, code in codes.items()}

    def convert(printed: str) -> int:
        code = known.get(_normalized(printed), otherwise)
        if code is None:
            raise NoValue(pynvml.NVML_ERROR_UNKNOWN)
        return code

    return convert


def _normalized(word: str) -> str:
    return re.sub(r"[^a-z0-9]", "", word.lower())
