"""The demo tells the whole life of a fault, in order, and its cluster answers to commands in another terminal."""

import contextlib
import re
import signal
import subprocess
import sys

import pytest

from tests.cli.processes import COMMAND, environment, finish
from tests.e2e.shared import once
from tests.waiting import BOUND_SECONDS, until

STORY_SECONDS = 600.0
"""The demo itself gives each chapter a minute for what it is about."""

STORY = (
    frozenset({r"tuner +leaves GPUs 0 to 6 alone: no pod there has agreed to be tuned", r"2\. Power gets scarce"}),
    r"tuner +shares 2800 W among the GPUs: more than 2800 W was drawn",
    r"tuner +limits GPUs 0 to 7 to 350 W each",
    r"of 2800 W its GPUs may draw 2800 W and do draw \d+ W",
    r"3\. Power for all GPUs",
    r"tuner +restores the power limit of GPUs? [0-7]",
    r"4\. Less energy",
    r"a person +annotates ml-research/llama-pretrain-0 with \S+=batch, gpuwatch.io/autotune=enforce",
    r"tuner +watches GPUs 0 to 3 at full speed for a minute: ml-research/llama-pretrain-0",
    r"tuner +watches GPU 4 at full speed",
    r"Event GPUXid31 on pod serving/chat-7b",
    r"6\. A first memory error",
    frozenset(
        {
            r"gpuwatch +Event GPUDegraded on node gpu-node-1",
            r"gpuwatch +sets the condition GPUHealthy of gpu-node-1 to False",
            r"kubelet +offers pods 7 GPUs of gpu-node-1 instead of 8",
        }
    ),
    r"7\. The GPU breaks",
    r"gpuwatch +writes on gpu-node-1 what it is about to do",
    r"gpuwatch +needs no taint on gpu-node-1",
    r"gpuwatch +takes gpuwatch-slot-0",
    r"gpuwatch +asked it to leave and got a no: serving/chat-7b\S+-x2k4q may not go",
    r"kubelet +serving/chat-7b\S+-p8r4t is ready",
    r"gpuwatch +asks serving/chat-7b\S+-x2k4q to leave",
    r"scheduler +places serving/chat-7b\S+ on gpu-node-2",
    r"a person +ml-research/evaluate-1 is wanted and asks for 1 GPU",
    r"scheduler +places ml-research/evaluate-0 on gpu-node-1",
    r"10\. Repair",
    r"repairer +resets GPU 4",
    r"repairer +has put GPU 4 to work, and it passed",
    r"gpuwatch +removes from gpu-node-1 what it wrote",
    frozenset(
        {
            r"gpuwatch +sets the condition GPUHealthy of gpu-node-1 to True",
            r"gpuwatch +releases gpuwatch-slot-0",
            r"gpuwatch +Event GPUPluginRestart",
            r"kubelet +offers pods 8 GPUs of gpu-node-1 instead of 7",
            r"scheduler +places ml-research/evaluate-1 on gpu-node-1",
        }
    ),
    r"11\. The driver hangs",
    r"GPUHealthy of gpu-node-1 to False: gpu_unresponsive on GPU 6",
    r"GPUHealthy of gpu-node-1 to True",
    r"13\. Your turn",
)
"""What is printed, in this order; between these there is more."""


def unwrapped(text):
    """The text with its wrapped lines made whole and their times taken off."""
    return re.sub(r"^\d\d:\d\d:\d\d  ", "", re.sub(r"\n {22}", " ", text), flags=re.M)


SHORT = (
    *("A cluster at work", "Power gets scarce", "A first memory error", "The GPU breaks", "The work moves"),
    *("New work comes to the same node", "Repair"),
)
"""Chapters: what gpuwatch does to a node and to its GPUs, without those that show it once more."""

CHAT = "serving/chat-7b-5d9c7f6b8-x2k4q"
LEAVE = {CHAT, "gpu-operator/nvidia-device-plugin-daemonset"}
"""Who is asked to leave: the pod on the sick GPU, and the device plugin once that GPU is well."""


def asked_to_leave(story):
    """Pods, the device plugin's without the end of its name."""
    return {re.sub(r"(daemonset)-\d+", r"\1", pod) for pod in re.findall(r"asks (\S+) to leave", story)}


SHORT_STORY = (
    r"1\. A cluster at work",
    frozenset({r"tuner +leaves GPUs 0 to 6 alone: no pod there has agreed to be tuned", r"2\. Power gets scarce"}),
    r"tuner +shares 2800 W among the GPUs: more than 2800 W was drawn",
    r"tuner +limits GPUs 0 to 7 to 350 W each",
    r"of 2800 W its GPUs may draw 2800 W",
    r"3\. A first memory error",
    r"kubelet +offers pods 7 GPUs of gpu-node-1 instead of 8",
    r"4\. The GPU breaks",
    r"gpuwatch +needs no taint on gpu-node-1",
    r"gpuwatch +asked it to leave and got a no: serving/chat-7b\S+-x2k4q may not go",
    r"gpuwatch +asks serving/chat-7b\S+-x2k4q to leave",
    r"scheduler +places ml-research/evaluate-0 on gpu-node-1",
    r"7\. Repair",
    r"repairer +resets GPU 4",
    r"repairer +has put GPU 4 to work, and it passed",
    r"gpuwatch +removes from gpu-node-1 what it wrote",
    r"kubelet +offers pods 8 GPUs of gpu-node-1 instead of 7",
    r"scheduler +places ml-research/evaluate-1 on gpu-node-1",
    r"HEALTHY\s+(of 2800 W .*\s+)?gpu-node-1 +8 GPUs for pods",
)

SHORTENED = f"""
from gpuwatch.cli.demo import story
from gpuwatch.cli.main import main
story.STORY = tuple(chapter for chapter in story.STORY if chapter.title in {SHORT})
main()
"""


@contextlib.contextmanager
def playing(place, program, *options):
    """The demo as a process; ended with the block."""
    socket = place / "agent.sock"
    process = subprocess.Popen(
        [*program, "demo", "--listen", "127.0.0.1:0", "--socket", str(socket), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=BOUND_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def played(place, program):
    """What the demo prints from beginning to end."""
    with playing(place, program, "--pace", "1", "--end") as demo:
        told, errors = demo.communicate(timeout=STORY_SECONDS)
    assert (demo.returncode, errors) == (0, "")
    return unwrapped(told)


def in_order(patterns, story):
    """Whether it tells all of it, in this order; what stands together in a set has none."""
    at = 0
    for step in patterns:
        ends = []
        for words in {step} if isinstance(step, str) else step:
            found = re.compile(words).search(story, at)
            assert found, f"{words}\n is not in what follows:\n{story[at:]}"
            ends.append(found.end())
        at = max(ends)
    return True


def test_a_short_story_of_a_fault_is_reported_in_order_and_touches_only_what_it_must(tmp_path):
    story = played(tmp_path, (sys.executable, "-c", SHORTENED))
    assert in_order(SHORT_STORY, story)
    assert (story.count("taints gpu-node-1"), story.count("tainted ("), story.count("cordons")) == (0, 0, 0)
    assert asked_to_leave(story) == LEAVE
    assert set(re.findall(r"kubelet +(serving/\S+|ml-\S+|team-\S+) has ended", story)) == {CHAT}
    assert story.count("has put GPU 4 to work") == 1
    assert "gpu_missing" not in story, "a GPU that is closed for its reset is not missing"
    assert not re.search(r"^\S+ +.*GPU-[0-9a-f]{8}", story, re.M), "people name GPUs by their number"


@pytest.fixture(scope="session")
def story(tmp_path_factory):
    """What the whole demo prints; played once in a run."""
    return once(tmp_path_factory, "demo", lambda place: played(place, COMMAND))


@pytest.mark.slow  # a minute; the short story above has what matters of each
class TestWholeStory:
    def test_it_shows_what_happens_in_order(self, story):
        assert in_order(STORY, story)

    def test_an_application_error_a_sick_gpu_and_a_hang_taint_nothing(self, story):
        assert "taints gpu-node-1" not in story
        assert "takes the taint" not in story

    def test_nobody_but_the_pod_on_the_broken_gpu_is_asked_to_leave(self, story):
        assert asked_to_leave(story) == LEAVE

    def test_the_budget_is_kept_as_soon_as_it_is_exceeded(self, story):
        drawn = re.findall(r"of 2800 W its GPUs may draw (\d+) W and do draw (\d+) W", story)
        assert drawn
        assert all(int(watts) <= 2800 for pair in drawn for watts in pair)

    def test_every_line_fits_and_names_gpus_as_people_do(self, story):
        assert not re.search(r"^\S+ +.*GPU-[0-9a-f]{8}", story, re.M)


@pytest.mark.slow  # quick: the short story is below
def test_its_cluster_obeys_another_terminal_until_it_is_stopped(tmp_path):
    with playing(tmp_path, COMMAND, "--pace", "60") as process:
        heard = ""
        while "1. A cluster at work" not in heard:
            line = process.stdout.readline()
            assert line, f"it ended after {heard}"
            heard += line
        variables = dict(pair.split("=", 1) for pair in re.search(r"export (.*)", heard)[1].split())

        def node(*args):
            return finish("--source", f"agent:{tmp_path / 'agent.sock'}", "node", *args, **variables)

        until(lambda: "GPUHealthy=True" in (status := node("status")).stdout and status.returncode == 0, step=0.5)
        tuner = finish("--source", f"agent:{tmp_path / 'agent.sock'}", "tune", "status", **variables)
        assert "mode enforce" in tuner.stdout
        done = node("quarantine", "--yes", "--reason", "new fan")
        assert (done.returncode, done.stderr.count("error")) == (0, 0)
        status = node("status")
        assert status.returncode == 4
        assert "only an operator releases it: new fan" in status.stdout
        assert node("release", "--yes").returncode == 0
        until(lambda: node("status").returncode == 0, step=0.5)
        process.send_signal(signal.SIGTERM)
        told, errors = process.communicate(timeout=BOUND_SECONDS)
    assert process.returncode == 130
    assert "Traceback" not in errors
    told = unwrapped(told)
    assert "a person    taints gpu-node-1 with gpuwatch.io/gpu-fault=operator:NoSchedule" in told
    assert "a person    takes the taint" in told
