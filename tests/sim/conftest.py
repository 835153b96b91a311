"""Simulated nodes live in memory."""

from tests.memory import no_folder_is_left, tmp_path  # noqa: F401 fixtures
