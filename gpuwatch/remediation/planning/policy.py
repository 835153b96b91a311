"""The policy: which response a finding gets, and when. `remediation.xids` overrides `remediation.checks`, which
overrides the table of checks.

No setting exceeds a check's `most`: an application's bug never taints a node.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from gpuwatch.config import MaintenanceWindow, RemediationConfig
from gpuwatch.health.check import Check
from gpuwatch.model.errors import UsageError
from gpuwatch.model.finding import Finding, Response, Scope, XidClass
from gpuwatch.model.snapshot import Record
from gpuwatch.model.xid_catalogue import explain

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def open_window(windows: Sequence[MaintenanceWindow], now: float) -> MaintenanceWindow | None:
    """The first window that unix time `now` is in. A window past midnight belongs to the day it starts on."""
    for window in windows:
        local = datetime.fromtimestamp(now, UTC).astimezone(ZoneInfo(window.timezone))
        clock, today = f"{local:%H:%M}", DAYS[local.weekday()]
        yesterday = DAYS[(local - timedelta(days=1)).weekday()]
        if window.start <= window.end:
            is_open = today in window.days and window.start <= clock < window.end
        else:
            began_today = today in window.days and clock >= window.start
            is_open = began_today or (yesterday in window.days and clock < window.end)
        if is_open:
            return window
    return None


def window_text(window: MaintenanceWindow) -> str:
    """A window as people read it."""
    days = "" if set(window.days) == set(DAYS) else f"{','.join(window.days)} "
    return f"{days}{window.start}-{window.end} {window.timezone}"


class PolicyRule(NamedTuple):
    """One line of the effective policy: about a check, or about an XID whatever check it comes from.

    `origin`: the key of the configuration, or `default`.
    """

    subject: str
    response: Response
    most: Response
    origin: str
    scope: Scope


class Policy(Record, frozen=True, kw_only=True):
    """A valid RemediationConfig, with the table of checks."""

    config: RemediationConfig
    asked: dict[str, Response]
    origins: dict[str, str]
    """Check -> the key of the configuration that decides, or `default`."""
    most: dict[str, Response]
    scopes: dict[str, Scope]

    @classmethod
    def compile(
        cls, config: RemediationConfig, checks: Iterable[Check], classes: Mapping[int, XidClass] | None = None
    ) -> "Policy":
        """Check names and responses against the table. `classes`: of XIDs, by `checks.xids`.

        Raises:
            UsageError: an unknown check, or a response that its check does not allow; names the key.
        """
        rows = tuple(checks)
        most: dict[str, Response] = {row.name: row.most for row in rows}
        for name, response in config.checks.items():
            _known(name, f"remediation.checks.{name}", most)
            why = f"{name} is {_CHECK_KINDS.get(name, 'not a reason to go further')}"
            _allowed(f"remediation.checks.{name}", response, most[name], why)
        scopes: dict[str, Scope] = {row.name: row.scope if row.fault_domain == "gpu" else "node" for row in rows}
        for name, scope in config.scope.items():
            _known(name, f"remediation.scope.{name}", most)
            if scope == "gpu" and next(row for row in rows if row.name == name).fault_domain != "gpu":
                why = f"{name} is not a fault of one GPU"
                raise UsageError(f"remediation.scope.{name} asks for gpu, only node is possible", why, "use node")
        for number, name in enumerate(config.held_checks):
            _known(name, f"remediation.held_checks[{number}]", most)
        for code, response in config.xids.items():
            cap, why = xid_cap(code, most, classes or {})
            _allowed(f"remediation.xids.{code}", response, cap, why)
        defaults = {row.name: _default(row, config) for row in rows}
        named = {str(name): (response, f"remediation.checks.{name}") for name, response in config.checks.items()}
        answers = defaults | named
        return cls(
            config=config,
            asked={name: response for name, (response, _) in answers.items()},
            origins={name: origin for name, (_, origin) in answers.items()},
            most=most,
            scopes=scopes | {str(name): scope for name, scope in config.scope.items()},
        )

    def response(self, finding: Finding) -> Response:
        """What is to be done about a finding."""
        return self.answer(finding.check, finding.xid)

    def answer(self, check: str, xid: int | None = None) -> Response:
        """What is to be done about a check's finding. A check that the table does not have comes from an agent of
        another version: it is observed, never acted on.
        """
        if check not in self.asked:
            return Response.OBSERVE
        asked = self.asked[check]
        if xid is not None:
            asked = self.config.xids.get(xid, asked)
        most = self.most[check]
        return most if asked.reaches(most) else asked

    def scope(self, check: str) -> Scope:
        """What a check's finding takes out of service, as far as the platform allows."""
        return self.scopes.get(check, "node")

    def rules(self) -> tuple[PolicyRule, ...]:
        """The effective policy: every check, and every XID that the configuration names."""
        checks = tuple(
            PolicyRule(name, self.answer(name), self.most[name], self.origins[name], self.scope(name))
            for name in self.asked
        )
        xids = tuple(
            PolicyRule(
                f"XID {code}",
                response,
                xid_cap(code, self.most, {})[0],
                f"remediation.xids.{code}",
                self.scope("xid_fatal"),
            )
            for code, response in sorted(self.config.xids.items())
        )
        return checks + xids

    def maintenance(self, now: float) -> MaintenanceWindow | None:
        """The window of the configuration in which nothing new may be begun, if it is open."""
        return open_window(self.config.maintenance, now)

    def may_drain(self, now: float) -> bool:
        """Whether pods may be asked to leave at this time."""
        return not self.config.drain.windows or open_window(self.config.drain.windows, now) is not None


def _default(check: Check, config: RemediationConfig) -> tuple[Response, str]:
    """The response of a check that the configuration does not name, and its origin."""
    response, origin = check.response, "default"
    if config.migrate and response.reaches(Response.TAINT) and check.most.reaches(Response.DRAIN):
        response, origin = Response.DRAIN, "remediation.migrate"
    if not config.at_most.reaches(response):
        response, origin = config.at_most, "remediation.at_most"
    return response, origin


_CLASS_CHECK: dict[XidClass, str] = {
    "fatal": "xid_fatal",
    "contained": "xid_contained",
    "warning": "xid_warning",
    "application": "xid_application",
    "ignore": "xid_unknown",
}


def xid_cap(code: int, most: Mapping[str, Response], classes: Mapping[int, XidClass]) -> tuple[Response, str]:
    """The strongest response to an XID, and why it is no stronger."""
    info = explain(code)
    if code in classes:
        return most.get(_CLASS_CHECK[classes[code]], Response.DRAIN), f"checks.xids calls {code} {classes[code]}"
    if info is None:
        why = f"XID {code} is not documented: set its class in checks.xids first"
        return most.get("xid_unknown", Response.OBSERVE), why
    if info.category == "application":
        return most.get("xid_application", Response.OBSERVE), f"XID {code} is an application's own fault"
    return Response.DRAIN, ""


_CHECK_KINDS = {
    "monitoring_degraded": "trouble of the monitor, not of a GPU",
    "xid_application": "an application's own fault",
    "xid_application_repeated": "most likely still an application's fault",
    "xid_unknown": "an XID that is not documented",
}


def _known(name: str, key: str, checks: Mapping[str, Response]) -> None:
    if name not in checks:
        near = difflib.get_close_matches(name, checks, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"use {', '.join(checks)}"
        raise UsageError(f"unknown check at {key}", f"gpuwatch has no check {name}", hint)


def _allowed(key: str, response: Response, most: Response, why: str) -> None:
    if not most.reaches(response):
        choices = ", ".join(choice for choice in Response if most.reaches(choice))
        raise UsageError(f"{key} asks for {response}, at most {most} is possible", why, f"use {choices}")
