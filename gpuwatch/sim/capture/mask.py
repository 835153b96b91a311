"""Makes a recording fit to hand out: serial numbers, UUIDs and cluster ids become counted stand-ins."""

import re
from typing import Any

from gpuwatch.sim.capture.data import Answer, Recording

_UUID = re.compile(r"\b(?P<kind>(?:GPU-|MIG-|)?)[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SERIALS = ("nvmlDeviceGetSerial", "nvmlVgpuInstanceGetVmID")
_BYTES = ("clusterUuid", "chassisSerialNumber", "ibGuid")


def mask(recording: Recording) -> Recording:
    """A copy in which equal ids stay equal; the device part of a PCI address stays, for faults hang on it."""
    masking = _Masking(_serials(recording))
    masked = Recording(recording.header)
    for asked, runs in recording.runs.items():
        question = tuple(masking.plain(part) for part in asked)
        masked.runs[question] = [(count, masking.plain(answer)) for count, answer in runs]
        masked.microseconds[question] = recording.microseconds.get(asked, [])
    return masked


def _serials(recording: Recording) -> list[str]:
    found = {
        text
        for asked, runs in recording.runs.items()
        if asked[0] in _SERIALS
        for _, answer in runs
        for text in _strings(answer)
    }
    return sorted(found, key=len, reverse=True)


def _strings(answer: Answer) -> list[str]:
    if isinstance(answer, str):
        return [answer] if answer else []
    if isinstance(answer, dict):
        return [text for key, item in answer.items() if key in ("bytes", "members") for text in _strings(item)]
    return [text for item in answer for text in _strings(item)] if isinstance(answer, list) else []


class _Masking:
    def __init__(self, serials: list[str]) -> None:
        self._serials = {serial: str(number).zfill(len(serial)) for number, serial in enumerate(serials)}
        self._uuids: dict[str, str] = {}

    def plain(self, data: Any) -> Any:
        """Plain data with every id replaced."""
        if isinstance(data, str):
            return self._text(data)
        if isinstance(data, list | tuple):
            return type(data)(self.plain(item) for item in data)
        if isinstance(data, dict):
            return {key: self._bytes(item) if key in _BYTES else self.plain(item) for key, item in data.items()}
        return data

    def _text(self, text: str) -> str:
        if text in self._serials:
            return self._serials[text]
        return _UUID.sub(self._uuid, text)

    def _uuid(self, match: re.Match[str]) -> str:
        number = len(self._uuids)
        return self._uuids.setdefault(match[0], f"{match['kind']}{number:08x}-0000-0000-0000-{number:012x}")

    @staticmethod
    def _bytes(item: Any) -> Any:
        return [0] * len(item) if isinstance(item, list) else ""
