"""The live view: what keys do, how a sparkline grows, and the real thing in a real terminal."""

import os
import pty
import select
import termios

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.cli.console.terminal import UNICODE
from gpuwatch.cli.look.gather import gpu_items
from gpuwatch.cli.look.top import KEYS_HELP, HostSample, screen
from gpuwatch.cli.look.top_state import HISTORY, KEYS, SORTS, TopState, UtilizationHistory, arranged, named, press
from gpuwatch.host.load import HostUse, ProcessUse
from tests.cli.commands import ask, serving
from tests.cli.processes import started
from tests.model import views
from tests.waiting import BOUND_SECONDS, until


def pressed(*keys: str, state: TopState | None = None) -> TopState:
    for key in keys:
        state = press(state or TopState(), key)
    return state or TopState()


def shown(state: TopState, view=None) -> list[int]:
    return [gpu.index for gpu in arranged(state, gpu_items(view or views.healthy()))]


def test_sorting_puts_the_largest_first_and_the_unknown_last():
    assert shown(TopState(sort="util")) == [0, 1, 2]
    assert shown(TopState(sort="util", reverse=True)) == [2, 1, 0]
    assert shown(TopState(sort="temp"), views.failing()) == [0, 1, 2]
    assert shown(TopState(sort="temp", reverse=True), views.failing()) == [1, 0, 2]


def test_keys_go_round_the_columns():
    names = list(SORTS)
    assert [pressed(*["s"] * count).sort for count in range(len(names) + 1)] == [*names, names[0]]
    assert pressed("right", "left").sort == names[0]
    assert pressed("left").sort == names[-1]


def test_q_ends_unless_it_is_typed_into_the_filter():
    assert pressed("q").done
    assert not pressed("f", "q").done
    assert pressed("f", "q").filter == "q"


def test_the_filter_is_typed_kept_and_cleared():
    assert pressed("f", "c", "h", "x", "backspace", "enter") == TopState(filter="ch")
    assert shown(pressed("f", *"chat", "enter")) == [1]
    assert shown(TopState(filter="FAILED"), views.failing()) == [2]
    assert pressed("f", "c", "escape") == TopState()
    assert pressed("f", "c", "enter", "escape") == TopState()


def test_an_unknown_key_changes_nothing():
    assert pressed("x") == TopState()
    assert pressed("f", "up") == TopState(editing=True)


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        (b"\x1b[C", ["right"]),
        (b"\x1bOD", ["left"]),
        (b"\x1b", ["escape"]),
        (b"\x7f", ["backspace"]),
        ("fé\r".encode(), ["f", "é", "enter"]),
        (b"\x1b[A\x1b[Bs", ["up", "down", "s"]),
        (b"\x1b[15~q", ["q"]),
        (b"\x00\xff", []),
    ],
)
def test_keys_have_names_also_when_typed_fast(data, keys):
    assert named(data) == keys


@given(st.binary(max_size=64))
def test_no_bytes_break_the_keys(data):
    assert all(key for key in named(data))


def test_a_sparkline_grows_at_the_right_and_leaves_gaps():
    history, gpus = UtilizationHistory(), gpu_items(views.failing())
    for _ in range(3):
        history.add(views.failing())
    assert history.spark(gpus[0], UNICODE) == "███".rjust(HISTORY)
    assert history.spark(gpus[2], UNICODE).strip() == ""


def test_a_screen_fills_its_terminal_and_no_more():
    lines = screen(views.failing(), TopState(filter="x"), UtilizationHistory(), UNICODE, width=70, height=12)
    assert len(lines) == 12
    assert max(line.cell_len for line in lines) <= 70
    assert "filter: x" in lines[-1].plain


def test_trouble_with_the_agent_is_reported_and_the_last_view_stays():
    lines = screen(
        views.healthy(), TopState(), UtilizationHistory(), UNICODE, width=80, height=12, error="cannot reach the agent"
    )
    assert lines[-1].plain == "cannot reach the agent"
    assert "gpu-node-07" in lines[0].plain


def test_once_prints_and_ends_sorted():
    lines = ask(views.healthy(), "top", "--once", "--sort", "power").stdout.splitlines()
    assert [line.split()[0] for line in lines[3:]] == ["0", "1", "2"]


def read_until(fd: int, wanted: bytes) -> bytes:
    """What comes from a terminal, whose other end is open, until `wanted` has come."""
    data = b""

    def has_come() -> bool:
        nonlocal data
        if select.select([fd], [], [], 1.0)[0]:
            data += os.read(fd, 65536)
        return wanted in data

    until(has_come, f"{wanted!r} on the terminal", step=0)
    return data


def test_a_terminal_shows_it_takes_keys_and_gets_its_mode_back():
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    variables = {"TERM": "xterm", "LINES": "20"}
    ends = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "start_new_session": True}
    with (
        serving(views.healthy()) as path,
        started("--source", f"agent:{path}", "top", "--interval", "0.2", variables=variables, **ends) as process,
    ):
        read_until(ours, b"q quit")
        os.write(ours, b"f")
        read_until(ours, b"filter: ")
        os.write(ours, b"chat\r")
        read_until(ours, b"filter: chat")
        os.write(ours, b"q")
        read_until(ours, b"\x1b[?1049l")
        assert process.wait(BOUND_SECONDS) == 0
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


def test_the_host_stands_beside_the_gpus_when_it_is_known():
    busy = HostUse(cpu=0.34, processors=64, memory_used=120 << 30, memory_total=512 << 30, load=3.14)
    host = HostSample(busy, {})
    lines = screen(views.healthy(), TopState(), UtilizationHistory(), UNICODE, width=80, height=14, host=host)
    assert lines[1].plain == "HOST CPU 34% of 64   memory 120/512 GiB   load 3.1"
    assert not any(
        line.plain.startswith("HOST")
        for line in screen(views.healthy(), TopState(), UtilizationHistory(), UNICODE, width=80)
    )


IDLE_HOST = HostUse(cpu=0.0, processors=8, memory_used=1 << 30, memory_total=8 << 30, load=0.0)
TRAIN = ProcessUse(cpu=3.5, memory=12 << 30, seconds=7200.0, command="python train.py --lr 0.1", parent=1, uid=0)
CHAT = ProcessUse(cpu=0.2, memory=1 << 30, seconds=86_400.0, command="vllm serve", parent=1, uid=0)
HOST = HostSample(IDLE_HOST, {4001: TRAIN, 4002: CHAT})


def processes(state: TopState, host=HOST, width: int = 160) -> list[str]:
    lines = screen(views.healthy(), state, UtilizationHistory(), UNICODE, width=width, height=14, host=host)
    return [line.plain for line in lines]


def test_processes_stand_with_what_they_take_of_the_host():
    lines = processes(TopState(screen="processes"))
    assert lines[3].split()[-5:] == ["HOST", "MEM", "TIME", "WORKLOAD", "COMMAND"]
    row = lines[4]
    assert all(each in row for each in ("4001", "350%", "12 GiB", "2h", "llama-3-pretrain", "python train.py --lr 0.1"))


def test_of_another_machine_only_what_its_agent_says_is_shown():
    lines = processes(TopState(screen="processes"), host=None)
    assert "HOST MEM" not in lines[2]
    assert "pt_main_thread" in lines[3]


def test_processes_are_sorted_and_filtered_by_their_own():
    by_time = processes(TopState(screen="processes", process_sort="time"))
    assert [line.split()[1] for line in by_time[4:6]] == ["4002", "4001"]
    for text in ("vllm serve", "4002", "chat", "root"):
        assert any("4002" in line for line in processes(TopState(screen="processes", filter=text))[4:-1])
    assert not any("4002" in line for line in processes(TopState(screen="processes", filter="train.py"))[4:-1])


def test_keys_turn_to_the_processes_and_sort_these():
    assert pressed("p").screen == pressed("tab").screen == "processes"
    assert pressed("p", "p") == TopState()
    assert (pressed("p", "s").process_sort, pressed("p", "s").sort) == ("util", "gpu")
    assert pressed("?").screen == "help"
    assert pressed("?", "x") == TopState()
    assert pressed("?", "q").done


def test_the_help_lists_every_key():
    listed = {key.strip() for keys, _ in KEYS_HELP for key in keys.split(",")}
    assert {key.lower() for key in listed} == set(KEYS) - {"?"}


def test_a_process_takes_no_terminal():
    """Its command line is its own text."""
    evil = HostSample(
        IDLE_HOST, {4001: ProcessUse(cpu=0.0, memory=1, seconds=1.0, command="\x1b[2Jx\nforged row", parent=1, uid=0)}
    )
    lines = processes(TopState(screen="processes"), host=evil)
    assert not any("\x1b" in line or "\n" in line for line in lines)


def test_why_clocks_are_held_is_shown_where_they_are():
    held = screen(views.degraded(), TopState(), UtilizationHistory(), UNICODE, width=160)
    assert "HELD BY" in held[2].plain
    assert "hw thermal slowdown" in "\n".join(line.plain for line in held)


def test_a_wide_terminal_shows_more_of_the_past():
    history = UtilizationHistory()
    for _ in range(100):
        history.add(views.healthy())
    narrow, wide = (
        screen(views.healthy(), TopState(), history, UNICODE, width=width, height=20)[3].plain.count("█")
        for width in (100, 200)
    )
    assert (narrow, wide) == (HISTORY, 100)
