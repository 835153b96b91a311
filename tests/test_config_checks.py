"""`checks:` and other mappings of the configuration: what is wrong in them is named by its key."""

from typing import Any

import pytest

from gpuwatch.config import ChecksConfig, parse
from gpuwatch.model.errors import UsageError


def test_what_is_set_is_taken() -> None:
    config = parse({"checks": {"xids": {94: "fatal", 31: "ignore"}, "ignore": ["mig_pending"], "boot_grace": 5}}, "f")
    assert config.checks.xids == {94: "fatal", 31: "ignore"}
    assert config.checks.ignore == ("mig_pending",)
    assert config.checks.boot_grace == 5
    assert parse({}, "f").checks == ChecksConfig()


@pytest.mark.parametrize(
    ("checks", "place", "hint"),
    [
        ({"xids": {31: "fatal", 94: "bad"}}, "checks.xids.94", "use fatal, contained, warning, application, ignore"),
        ({"xids": {"a": "fatal"}}, "checks.xids", None),
        ({"ignore": ["gpu_los"]}, "checks.ignore", "did you mean gpu_lost?"),
        ({"xid_exire": 5}, "checks.xid_exire", "did you mean checks.xid_expire?"),
        ({"repeat_pods": 1}, "checks.repeat_pods", "use 2 to 64"),
        ({"xid_clear_after": 0}, "checks.xid_clear_after", None),
    ],
)
def test_what_is_wrong_is_named(checks: dict[str, Any], place: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as raised:
        parse({"checks": checks}, "f")
    assert place in str(raised.value)
    assert hint is None or hint in str(raised.value)


def test_the_words_of_an_enumeration_inside_a_mapping() -> None:
    with pytest.raises(UsageError, match=r"remediation\.checks\.gpu_lost.*use ignore, observe, condition, taint"):
        parse({"remediation": {"checks": {"gpu_lost": "tant"}}}, "f")
