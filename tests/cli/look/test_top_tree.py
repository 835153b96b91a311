"""The tree of `gpuwatch top`: workloads, the parents that matter, the processes on GPUs."""

import os

import pytest
from msgspec.structs import replace

from gpuwatch.cli.console.terminal import ASCII, UNICODE
from gpuwatch.cli.look.gather import process_items
from gpuwatch.cli.look.top import HostSample, screen
from gpuwatch.cli.look.top_state import ProcessRow, TopState, UtilizationHistory, press
from gpuwatch.cli.look.top_tree import tree_rows
from gpuwatch.host.load import HostUse, ProcessMeter, ProcessUse
from tests.cli.commands import ask
from tests.model import views

IDLE_HOST = HostUse(cpu=0.0, processors=8, memory_used=1 << 30, memory_total=8 << 30, load=0.0)


def use(parent: int, command: str, uid: int = 1000) -> ProcessUse:
    return ProcessUse(cpu=0.5, memory=1 << 30, seconds=60.0, command=command, parent=parent, uid=uid)


def rows(pids: list[int], host: dict[int, ProcessUse], glyphs=UNICODE) -> list[tuple[str, str]]:
    """GPUs and label of each row; the processes are of one pod, process N on GPU N % 10."""
    one = process_items(views.healthy())[0]
    found = [ProcessRow(replace(one, pid=pid, gpu=pid % 10), host.get(pid)) for pid in pids]
    return [(",".join(str(item.gpu) for item in row.items), row.label) for row in tree_rows(found, host, glyphs)]


def labels(pids: list[int], host: dict[int, ProcessUse], glyphs=UNICODE) -> list[str]:
    return [label for _, label in rows(pids, host, glyphs)][1:]


SHIM = {1: use(0, "init", 0), 50: use(1, "containerd-shim", 0), 60: use(50, "bash start.sh"), 70: use(60, "torchrun")}
RANKS = {pid: use(70, f"python train.py --rank {pid - 80}") for pid in (80, 81, 82)}


def test_a_launcher_joins_its_ranks_and_what_another_user_runs_is_left_out():
    assert labels([80, 81, 82], {**SHIM, **RANKS}) == [
        "└─ torchrun",
        "   ├─ python train.py --rank 0",
        "   ├─ python train.py --rank 1",
        "   └─ python train.py --rank 2",
    ]


def test_a_parent_that_is_on_a_gpu_itself_is_above_its_child_whatever_stands_between():
    host = {**SHIM, 80: use(70, "server"), 90: use(80, "sh"), 91: use(90, "wrapper"), 92: use(91, "worker")}
    assert labels([80, 92], host) == ["└─ torchrun", "   └─ server", "      └─ wrapper", "         └─ worker"]


def test_a_shell_above_two_launchers_joins_them():
    host = {**SHIM, 71: use(60, "torchrun"), 80: use(70, "a"), 81: use(71, "b")}
    assert labels([80, 81], host, ASCII) == [
        "`- bash start.sh",
        "   |- torchrun",
        "   |  `- a",
        "   `- torchrun",
        "      `- b",
    ]


def test_parents_that_form_a_circle_end_it():
    """Pids are read one by one; one that is used again in between can name its own child as its parent."""
    assert labels([80], {80: use(81, "a"), 81: use(80, "b")}) == ["└─ b", "   └─ a"]


def test_each_of_two_that_are_the_other_s_parent_is_shown_once():
    found = labels([80, 81], {80: use(81, "a"), 81: use(80, "b")})
    assert len(found) == 2
    assert {label[-1] for label in found} == {"a", "b"}


def test_a_chain_of_any_length_is_shown():
    """A user may start each process of a chain from the one before, and all of them on GPUs."""
    pids = list(range(100, 1300))
    assert len(labels(pids, {pid: use(pid - 1, "a") for pid in pids})) == len(pids)


def test_a_workload_sums_up_its_processes_and_a_process_on_several_gpus_has_a_line_for_each():
    one, *_ = process_items(views.healthy())
    found = [ProcessRow(replace(one, gpu=gpu, memory=gpu << 30)) for gpu in (2, 3)]
    workload, process, *devices = tree_rows(found, {}, UNICODE)
    assert (workload.workload, workload.pid, process.pid) == (True, None, one.pid)
    assert [sum(item.memory for item in row.items) >> 30 for row in (workload, process, *devices)] == [5, 5, 2, 3]
    assert [row.label for row in devices] == ["   on GPU 2", "   on GPU 3"]


def lines(state: TopState, host: HostSample | None, width: int = 160, height: int = 24) -> list[str]:
    shown = screen(views.healthy(), state, UtilizationHistory(), UNICODE, width=width, height=height, host=host)
    return [line.plain for line in shown]


HOST = HostSample(IDLE_HOST, {4001: use(70, "python train.py"), 4002: use(1, "vllm serve"), 70: use(60, "torchrun")})


def test_the_screen_shows_pods_with_their_processes():
    shown = lines(TopState(screen="tree"), HOST)
    assert shown[3].endswith("WORKLOAD, PROCESSES")
    first, second, third = shown[4:7]
    assert "llama-3-pretrain" in first
    assert second.endswith("└─ torchrun")
    assert third.endswith("   └─ python train.py")
    assert "4001" in third


@pytest.mark.parametrize("text", ["vllm", "4002", "chat"])
def test_the_filter_of_the_processes_is_that_of_the_tree(text):
    shown = lines(TopState(screen="tree", filter=text), HOST)
    assert any("4002" in line for line in shown)
    assert not any("4001" in line or "torchrun" in line for line in shown)


def test_the_order_is_that_of_the_processes():
    firsts = [
        next(line for line in lines(TopState(screen="tree", reverse=reverse), HOST)[4:] if "└─" not in line)
        for reverse in (False, True)
    ]
    assert firsts[0] != firsts[1]


def test_of_another_machine_the_tree_has_no_parents_and_no_columns_of_the_host():
    shown = lines(TopState(screen="tree"), None)
    assert "HOST MEM" not in shown[2]
    assert shown[4].endswith("└─ pt_main_thread")


@pytest.mark.parametrize(("width", "height"), [(60, 12), (80, 24), (200, 50)])
def test_the_tree_fits_its_terminal(width, height):
    shown = lines(TopState(screen="tree"), HOST, width, height)
    assert len(shown) == height
    assert max(map(len, shown)) <= width
    assert any("torchrun" in line for line in shown)


def test_a_command_line_takes_no_terminal():
    evil = HostSample(IDLE_HOST, {4001: use(70, "\x1b[2Jx\nforged row"), 70: use(60, "\x1b]0;title\x07")})
    assert not any(set("\x1b\n\x07") & set(line) for line in lines(TopState(screen="tree"), evil))


def test_t_turns_to_the_tree_and_back_and_sorts_as_the_processes_are():
    tree = press(TopState(), "t")
    assert tree.screen == "tree"
    assert press(tree, "t") == TopState()
    assert press(tree, "p").screen == "processes"
    assert press(tree, "s").process_sort == "util"


def test_once_prints_the_tree():
    shown = ask(views.healthy(), "top", "--tree", "--once").stdout.splitlines()
    assert any("llama-3-pretrain" in line for line in shown)
    assert any("pt_main_thread" in line for line in shown)


def test_the_processes_above_one_are_read_only_when_asked_for():
    pid = os.getpid()
    assert set(ProcessMeter().read([pid])) == {pid}
    found = ProcessMeter().read([pid], parents=True)
    assert found[pid].parent == os.getppid()
    assert os.getppid() in found
    assert found[pid].uid == os.getuid()
