"""What counts as proof that a GPU works, on a fake libcuda and with real commands."""

import pytest
from msgspec.structs import replace

from gpuwatch.diagnose.validation import ValidationCommand, validate
from gpuwatch.model.clock import SystemClock
from tests.diagnose.active.putting_to_work import devices


@pytest.fixture
def run(cuda, view):
    def run(*indexes, seen=view, command=()):
        return validate(
            seen, frozenset(indexes), SystemClock(), ValidationCommand(command, 20.0), library=str(cuda.library)
        )

    return run


@pytest.mark.slow  # the quick one: test_a_command_that_fails_fails_the_gpu
def test_a_gpu_that_works_passes_and_the_command_gets_its_uuid(run, view):
    right = f'[ "$1" = {devices(view)[0]} ] && [ "$2" = 0 ]'
    found = run(0, command=("/bin/sh", "-c", right, "sh", "{uuid}", "{index}"))
    assert [(each.gpu, each.passed, each.message) for each in found.validations] == [(devices(view)[0], True, "")]
    assert found.refused == {}
    assert found.validations[0].boot_id == view.snapshot.host.boot_id


def test_a_gpu_that_forgets_fails_and_the_check_is_named(run, cuda, view):
    cuda.wrong("memory", 123456, devices(view)[0])
    (found,) = run(0).validations
    assert not found.passed
    assert found.message.startswith("X03: GPU 0: 1 of 6291456 words are wrong")


def test_a_command_that_fails_fails_the_gpu(run, view):
    command = ("/bin/sh", "-c", 'printf "$1 $2 is bad\\033[2J"; exit 3', "sh", "{uuid}", "{index}")
    (found,) = run(0, command=command).validations
    assert not found.passed
    assert f"exit status 3; {devices(view)[0]} 0 is bad" in found.message
    assert "\033" not in found.message


def test_a_gpu_in_use_proves_nothing(run, view, cuda):
    gpu = view.snapshot.gpus[0]
    busy = replace(view, snapshot=replace(view.snapshot, gpus=(replace(gpu, processes=None),)))
    found = run(0, seen=busy)
    assert found.validations == ()
    assert "whether it is in use is not known" in found.refused[0]
    assert cuda.calls() == []
