"""The driver's libraries are found where drivers are installed, in the version that their names tell."""

from pathlib import Path

from gpuwatch.diagnose.host.driver_files import DriverRoot, driver_roots


def install(folder: Path, name: str, version: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.{version}").write_text("")
    (folder / f"{name}.1").symlink_to(f"{name}.{version}")


def test_a_host_with_packages(tmp_path: Path) -> None:
    libraries = tmp_path / "usr/lib/x86_64-linux-gnu"
    install(libraries, "libnvidia-ml.so", "570.86.15")
    install(libraries, "libcuda.so", "570.86.15")
    for program in ("nvidia-smi", "nvidia-modprobe"):
        (tmp_path / "usr/bin").mkdir(exist_ok=True)
        (tmp_path / "usr/bin" / program).write_text("")
    (tmp_path / "lib/firmware/nvidia/570.86.15").mkdir(parents=True)
    (tmp_path / "lib/firmware/nvidia/570.86.15/gsp_ga10x.bin.zst").write_text("")
    (tmp_path / "lib/firmware/nvidia/ga102").mkdir()
    assert driver_roots(tmp_path) == (
        DriverRoot(
            path="/",
            libraries={"libnvidia-ml.so.1": "570.86.15", "libcuda.so.1": "570.86.15"},
            smi=True,
            modprobe=True,
            firmware={"570.86.15": ("gsp_ga10x.bin.zst",)},
        ),
    )


def test_a_driver_container_beside_a_bare_host(tmp_path: Path) -> None:
    install(tmp_path / "run/nvidia/driver/usr/lib64", "libcuda.so", "570.86.15")
    (tmp_path / "run/nvidia/driver/dev").mkdir()
    (tmp_path / "run/nvidia/driver/dev/nvidiactl").write_text("")
    found = driver_roots(tmp_path)
    assert [(root.path, root.libraries, root.devices) for root in found] == [
        ("/run/nvidia/driver", {"libcuda.so.1": "570.86.15"}, True)
    ]


def test_the_folder_that_the_linker_would_take_first_wins(tmp_path: Path) -> None:
    install(tmp_path / "usr/lib/x86_64-linux-gnu", "libcuda.so", "570.86.15")
    install(tmp_path / "usr/lib", "libcuda.so", "470.57.02")
    assert driver_roots(tmp_path)[0].libraries == {"libcuda.so.1": "570.86.15"}


def test_links_are_followed_within_the_root(tmp_path: Path) -> None:
    store = tmp_path / "nix/store/abc-nvidia-565.77/lib"
    install(store, "libcuda.so", "565.77")
    (tmp_path / "run/opengl-driver/lib").mkdir(parents=True)
    (tmp_path / "run/opengl-driver/lib/libcuda.so.1").symlink_to("/nix/store/abc-nvidia-565.77/lib/libcuda.so.1")
    assert driver_roots(tmp_path)[0].libraries == {"libcuda.so.1": "565.77"}


def test_a_broken_link_is_no_library_and_a_copy_is_known_by_its_neighbour(tmp_path: Path) -> None:
    libraries = tmp_path / "usr/lib64"
    libraries.mkdir(parents=True)
    (libraries / "libcuda.so.1").symlink_to("libcuda.so.570.86.15")
    (libraries / "libnvidia-ml.so.1").write_text("")
    assert driver_roots(tmp_path)[0].libraries == {"libnvidia-ml.so.1": ""}
    (libraries / "libnvidia-ml.so.570.86.15").write_text("")
    assert driver_roots(tmp_path)[0].libraries == {"libnvidia-ml.so.1": "570.86.15"}


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    libraries = tmp_path / "usr/lib64"
    libraries.mkdir(parents=True)
    (libraries / "libcuda.so.1").symlink_to("libcuda.so")
    (libraries / "libcuda.so").symlink_to("libcuda.so.1")
    assert driver_roots(tmp_path) == ()
