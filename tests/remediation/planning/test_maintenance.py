"""Windows: past midnight they belong to the day they begin on, and their clock is the one of their zone."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gpuwatch.config import MaintenanceWindow
from gpuwatch.remediation.planning.policy import open_window


@pytest.mark.parametrize(
    ("settings", "when", "expected"),
    [
        ({"start": "22:00", "end": "04:00"}, "2026-03-02 23:00", True),
        ({"start": "22:00", "end": "04:00"}, "2026-03-03 03:59", True),
        ({"start": "22:00", "end": "04:00"}, "2026-03-03 04:00", False),
        ({"start": "22:00", "end": "04:00", "days": ("mon",)}, "2026-03-03 03:00", True),
        ({"start": "22:00", "end": "04:00", "days": ("mon",)}, "2026-03-02 03:00", False),
        ({"start": "09:00", "end": "17:00", "days": ("sat", "sun")}, "2026-03-02 12:00", False),
        ({"start": "22:00", "end": "23:00", "timezone": "America/New_York"}, "2026-03-03 03:30", True),
        ({"start": "22:00", "end": "23:00", "timezone": "America/New_York"}, "2026-07-03 02:30", True),
        ({"start": "22:00", "end": "23:00", "timezone": "America/New_York"}, "2026-07-03 03:30", False),
    ],
)
def test_a_time_is_inside_or_not(settings: dict[str, Any], when: str, expected: bool) -> None:
    now = datetime.fromisoformat(when).replace(tzinfo=UTC).timestamp()
    assert (open_window((MaintenanceWindow(**settings),), now) is not None) is expected
