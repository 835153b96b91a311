"""How long a sick GPU is left alone between two reads."""

import pytest

from gpuwatch.collect.reader.gpu_thread import LOST_SECONDS, SLOW_SECONDS, backoff_seconds


def test_a_lost_gpu_is_asked_less_and_less_often() -> None:
    pauses = [backoff_seconds(2.0, losses, took=(0.01, 0.01)) for losses in range(1, 40)]
    assert pauses[:4] == [4.0, 8.0, 16.0, LOST_SECONDS]
    assert set(pauses[4:]) == {LOST_SECONDS}


def test_one_that_is_read_more_rarely_than_that_keeps_its_interval() -> None:
    assert backoff_seconds(2 * LOST_SECONDS, losses=9, took=(0.01, 0.01)) == 2 * LOST_SECONDS


@pytest.mark.parametrize(("took", "pause"), [(0.3, 0.0), (SLOW_SECONDS, 0.0), (6.5, 6.5), (45.0, LOST_SECONDS)])
def test_one_whose_driver_times_out_inside_is_left_alone_for_as_long(took: float, pause: float) -> None:
    assert backoff_seconds(2.0, losses=0, took=(took, took)) == pause


def test_one_that_hung_once_is_read_again_at_once() -> None:
    assert backoff_seconds(2.0, losses=0, took=(0.01, 3600.0)) == 0.0
    assert backoff_seconds(2.0, losses=0, took=(3600.0, 0.01)) == 0.0
