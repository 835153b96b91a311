"""Configuration space of simulated PCI devices: the first registers, the PCI Express capability, ACS of a port."""

import struct

from gpuwatch.sim.node.profiles import Model

PORT_TYPES = {"root": 4, "upstream": 5, "downstream": 6}
_EXPRESS_AT, _AER_AT, _ACS_AT, _SIZE = 0x40, 0x100, 0x148, 0x200
SOURCE_VALIDATION, REQUEST_REDIRECT, COMPLETION_REDIRECT = 0x01, 0x04, 0x08


def gpu_config(model: Model, answers: bool) -> bytes:
    """Of a GPU; all ones when it is gone."""
    if not answers:
        return b"\xff" * _SIZE
    config = _config(0x10DE, model.device_id >> 16, 0x030200, port_type=0)
    struct.pack_into("<HH", config, 0x2C, model.subsystem_id & 0xFFFF, model.subsystem_id >> 16)
    return bytes(config)


def port_config(kind: str, acs: int = 0) -> bytes:
    """Of a root port (Intel) or one of a switch (Broadcom), with its ACS control register."""
    vendor, device = (0x8086, 0x352A) if kind == "root" else (0x1000, 0xC030)
    config = _config(vendor, device, 0x060400, PORT_TYPES[kind])
    struct.pack_into("<IHH", config, _ACS_AT, 0x1000D, 0x5F, acs)
    return bytes(config)


def _config(vendor: int, device: int, class_: int, port_type: int) -> bytearray:
    config = bytearray(_SIZE)
    struct.pack_into("<HHHHI", config, 0, vendor, device, 0x0406, 0x0010, class_ << 8 | 0xA1)
    config[0x34] = _EXPRESS_AT
    struct.pack_into("<BBH", config, _EXPRESS_AT, 0x10, 0, port_type << 4 | 2)
    struct.pack_into("<I", config, _AER_AT, _ACS_AT << 20 | 0x20001)
    return config
