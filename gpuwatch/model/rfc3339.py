"""RFC 3339 times, as Kubernetes and gpuwatch's own documents write them, to and from unix seconds."""

from datetime import UTC, datetime


def rfc3339(at: float, *, micro: bool = False) -> str:
    """Unix time `at` in UTC and whole seconds (Kubernetes' Time), or with `micro` in microseconds (its MicroTime)."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


def unix_time(text: str | None) -> float | None:
    """Seconds of an RFC 3339 time; without a zone it is UTC. None for a missing or malformed text."""
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    if moment is None:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
