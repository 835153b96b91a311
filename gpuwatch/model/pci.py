"""One PCI address, many spellings: the kernel, NVML, sysfs and people each write it differently.

0000:3b:00          Xid lines of the driver (no function)
0000:3b:00.0        sysfs, lspci, NVSwitch and bus-loss lines; gpuwatch's canonical form
00000000:3B:00.0    NVML's `busId`
PCI:0000:3b:00      the driver's prefix
3b:00.0             lspci on machines with one domain
"""

import re
from functools import lru_cache
from typing import Self

import msgspec

PATTERN = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[01][0-9A-Fa-f](?:\.[0-7])?"
"""A regular expression for an address with its domain, as the kernel log writes it."""

_ADDRESS = re.compile(r"(?:PCI:)?(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2}):([01][0-9A-Fa-f])(?:\.([0-7]))?", re.ASCII)


class PciAddress(msgspec.Struct, frozen=True, order=True):
    """Where a device sits. `str()` gives the canonical form, `0000:3b:00.0`."""

    domain: int
    bus: int
    device: int
    function: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read any spelling; a missing domain or function is 0. Raises ValueError."""
        match = _ADDRESS.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"not a PCI address: {text!r}")
        domain, bus, device, function = (int(part or "0", 16) for part in match.groups())
        return cls(domain, bus, device, function)

    def __str__(self) -> str:
        return f"{self.key}.{self.function}"

    @property
    def key(self) -> str:
        """`0000:3b:00`: what Xid lines and every other source have in common."""
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}"

    @property
    def nvml(self) -> str:
        """`00000000:3B:00.0`, as in `nvmlPciInfo_t.busId`."""
        return f"{self.domain:08X}:{self.bus:02X}:{self.device:02X}.{self.function}"


@lru_cache(maxsize=1_024)  # a storm of XIDs asks for the same few thousands of times a second
def pci_key(text: str | None) -> str | None:
    """The match key of any spelling, None when `text` is not an address."""
    try:
        return PciAddress.parse(text).key if text else None
    except ValueError:
        return None
