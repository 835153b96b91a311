"""NVLink state, traffic and errors, one record per link the GPU has."""

from collections.abc import Collection
from typing import Any

import msgspec

from gpuwatch.collect.nvml.decode import bit_error_rate
from gpuwatch.collect.nvml.fields import Tier
from gpuwatch.collect.nvml.library import Failure, Nvml, NvmlFailure, ask, ask_optional, text
from gpuwatch.collect.nvml.numbers import field_numbers
from gpuwatch.collect.nvml.reads import Answers, field_values
from gpuwatch.model.snapshot import NvLink

KIB = 1024

TRAFFIC = {
    "transmit_bytes": (("DEV_NVLINK_COUNT_XMIT_BYTES", 1), ("DEV_NVLINK_THROUGHPUT_DATA_TX", KIB)),
    "receive_bytes": (("DEV_NVLINK_COUNT_RCV_BYTES", 1), ("DEV_NVLINK_THROUGHPUT_DATA_RX", KIB)),
}
"""Member of NvLink -> (field, bytes per unit): NVLink 5 first, then what older generations answer."""

ERRORS = {
    "replay": "DEV_NVLINK_ERROR_DL_REPLAY",
    "recovery": "DEV_NVLINK_ERROR_DL_RECOVERY",
    "crc": "DEV_NVLINK_ERROR_DL_CRC",
    "malformed_packet": "DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS",
    "buffer_overrun": "DEV_NVLINK_COUNT_BUFFER_OVERRUN_ERRORS",
    "receive": "DEV_NVLINK_COUNT_RCV_ERRORS",
    "receive_remote": "DEV_NVLINK_COUNT_RCV_REMOTE_ERRORS",
    "receive_general": "DEV_NVLINK_COUNT_RCV_GENERAL_ERRORS",
    "local_link_integrity": "DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS",
    "transmit_discard": "DEV_NVLINK_COUNT_XMIT_DISCARDS",
    "link_recovery_failed": "DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS",
    "link_recovery": "DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS",
    "effective": "DEV_NVLINK_COUNT_EFFECTIVE_ERRORS",
    "symbol": "DEV_NVLINK_COUNT_SYMBOL_ERRORS",
}
"""Error label -> field read per link; NVLink 5 and older generations answer different ones."""

BIT_ERROR_RATES = {"effective_ber": "DEV_NVLINK_COUNT_EFFECTIVE_BER", "symbol_ber": "DEV_NVLINK_COUNT_SYMBOL_BER"}
"""Member of NvLink -> field read per link (NVLink 5)."""

FEC_HISTORY = {str(bin_): f"DEV_NVLINK_COUNT_FEC_HISTORY_{bin_}" for bin_ in range(16)}
"""Bin -> field read per link (NVLink 5)."""

SPEED = "DEV_NVLINK_GET_SPEED"  # MB/s
STATE = "DEV_NVLINK_GET_STATE"  # 0 inactive, 1 active, 2 asleep, which is active and saves power
COUNTED_AGAIN = 12
"""Reads of the slow tier between two counts of the links: a count costs a call per link, their state only one call."""

COUNTER_ERRORS = {"replay": 0, "recovery": 1, "crc_flit": 2, "crc_data": 3, "ecc_data": 4}
"""nvmlNvLinkErrorCounter_t, for drivers whose fields do not answer per link."""


class LinkReader:
    """The NVLinks of one GPU. A field that no link offers is asked once."""

    def __init__(self, nvml: Nvml, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._active: dict[int, bool | None] = {}
        self._remote: dict[int, str | None] = {}
        self._versions: dict[int, str | None] = {}
        self._types: dict[int, str | None] = {}
        self._slow_names = (SPEED, *ERRORS.values(), *BIT_ERROR_RATES.values(), *FEC_HISTORY.values())
        names = [STATE, *self._slow_names, *(name for ways in TRAFFIC.values() for name, _ in ways)]
        driver = text(ask_optional(nvml, "nvmlSystemGetDriverVersion") or "") or ""
        numbers = zip(names, field_numbers(nvml, driver, tuple(names)), strict=True)
        self._ids = {name: number for name, number in numbers if number is not None}
        self._traffic_ways = {
            member: [(self._ids[name], unit) for name, unit in ways] for member, ways in TRAFFIC.items()
        }
        self._traffic_ids = [number for ways in self._traffic_ways.values() for number, _ in ways]
        self._dead: set[int] = set()
        self._counters = set(COUNTER_ERRORS)
        self._records: dict[int, NvLink] = {}  # without traffic
        self._reads = 0
        self._field_agrees = False

    def traffic_fields(self) -> list[tuple[int, int]]:
        """(field id, link) of what every sample reads of the links known so far."""
        return self._wanted(self._traffic_ids)

    def read(self, tiers: Collection[Tier], traffic: Answers) -> tuple[NvLink, ...]:
        """One record per link; state and errors follow the slow tier, traffic every sample. `traffic`: the answers to
        `traffic_fields`, which were read with others in one call; what is missing is read here.
        """
        if Tier.SLOW in tiers:
            before, self._active = self._active, self._states()
            if before != self._active:  # links that came up offer more than they did while down
                self._dead, self._counters = set(), set(COUNTER_ERRORS)
                for link in self._active:
                    version = ask_optional(self._nvml, "nvmlDeviceGetNvLinkVersion", self._handle, link)
                    remote = ask_optional(self._nvml, "nvmlDeviceGetNvLinkRemotePciInfo", self._handle, link)
                    kind = ask_optional(self._nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", self._handle, link)
                    # a link that went down does not report its remote end, but still has it
                    self._versions[link] = VERSIONS.get(version or 0) or self._versions.get(link)
                    self._types[link] = REMOTE_TYPES.get(-1 if kind is None else kind) or self._types.get(link)
                    address = text(remote.busId) if remote else None
                    is_known = address and not address.upper().startswith(NO_ADDRESS)
                    self._remote[link] = address if is_known else self._remote.get(link)
            slow = self._fields([self._ids[name] for name in self._slow_names])
            self._records = {
                link: NvLink(
                    link=link,
                    active=active,
                    version=self._versions.get(link),
                    remote_pci=self._remote.get(link),
                    remote_type=self._types.get(link),
                    **self._state(slow, link),
                )
                for link, active in self._active.items()
            }
        values = self._fields(self._traffic_ids, traffic)
        return tuple(
            msgspec.structs.replace(record, **self._traffic(values, link)) for link, record in self._records.items()
        )

    def _states(self) -> dict[int, bool | None]:
        """Link -> active, None when that could not be read: by the field, with one call for all links known so far, if
        the field agreed with the calls when the links were last counted; else by a call for each link.
        """
        by_field: dict[int, bool | None] = {}
        if STATE in self._ids and self._ids[STATE] not in self._dead:
            states = self._fields([self._ids[STATE]])
            answers = {link: states.get((self._ids[STATE], link), _MISSING) for link in self._active}
            by_field = {link: bool(state) for link, state in answers.items() if not isinstance(state, NvmlFailure)}
        is_due, self._reads = self._reads % COUNTED_AGAIN == 0, self._reads + 1
        if self._field_agrees and not is_due and by_field.keys() == self._active.keys():
            return by_field
        counted: dict[int, bool | None] = {}
        for link in range(self._nvml.NVML_NVLINK_MAX_LINKS):
            try:
                counted[link] = bool(ask(self._nvml, "nvmlDeviceGetNvLinkState", self._handle, link))
            except NvmlFailure as error:
                if error.is_gone:
                    raise
                if error.kind is Failure.UNSUPPORTED:  # a link number that the GPU does not have
                    break
                if link in self._active:
                    counted[link] = None
                else:
                    self._reads = 0  # the next read counts again
        self._field_agrees = by_field == counted
        return counted

    def _wanted(self, ids: list[int]) -> list[tuple[int, int]]:
        return [(field, link) for link in self._active for field in ids if field not in self._dead]

    def _fields(self, ids: list[int], known: Answers | None = None) -> Answers:
        wanted, values = self._wanted(ids), known or {}
        if not values.keys() >= set(wanted):
            try:
                values = field_values(self._nvml, self._handle, wanted)
            except NvmlFailure as error:
                if error.is_gone:
                    raise
                return {}
        for field in ids:
            answers = (values[field, link] for link in self._active if (field, link) in values)
            if _is_unsupported(next(answers, None)) and all(map(_is_unsupported, answers)):
                self._dead.add(field)
        return values

    def _traffic(self, values: Answers, link: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for member, ways in self._traffic_ways.items():
            for number, unit in ways:
                value = values.get((number, link))
                if value is not None and not isinstance(value, NvmlFailure):
                    found[member] = int(value) * unit
                    break
        return found

    def _state(self, values: Answers, link: int) -> dict[str, Any]:
        errors, fec_history = (
            {
                label: int(value)
                for label, name in counters.items()
                if not isinstance(value := values.get((self._ids[name], link), _MISSING), NvmlFailure)
            }
            for counters in (ERRORS, FEC_HISTORY)
        )
        for label in () if errors else sorted(self._counters):
            counter = COUNTER_ERRORS[label]
            try:
                errors[label] = int(ask(self._nvml, "nvmlDeviceGetNvLinkErrorCounter", self._handle, link, counter))
            except NvmlFailure as error:
                if error.is_gone:
                    raise
                if error.kind is Failure.UNSUPPORTED:
                    self._counters.discard(label)
        speed = values.get((self._ids[SPEED], link), _MISSING)
        return {
            "errors": errors,
            "fec_history": fec_history,
            "speed_bytes_per_second": None if isinstance(speed, NvmlFailure) else speed * 1e6,
            **{
                member: bit_error_rate(value)
                for member, name in BIT_ERROR_RATES.items()
                if not isinstance(value := values.get((self._ids[name], link), _MISSING), NvmlFailure)
            },
        }


def _is_unsupported(answer: float | NvmlFailure | None) -> bool:
    return isinstance(answer, NvmlFailure) and answer.kind is Failure.UNSUPPORTED


_MISSING = NvmlFailure(Failure.TRANSIENT, 0, "not read")

NO_ADDRESS = "FFFFFFFF:FF"
"""The address that GPUs of a rack-wide NVLink domain report for a remote end that is no PCI device of this machine."""

REMOTE_TYPES = {0: "gpu", 1: "cpu", 2: "switch"}
"""nvmlIntNvLinkDeviceType_t (nvml.h); 1 is the CPU of POWER systems, 255 unknown."""

VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
"""NVML_NVLINK_VERSION_* (nvml.h)."""
