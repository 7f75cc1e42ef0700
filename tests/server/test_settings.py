"""Settings: the command line before the environment before the defaults, and paths that hold everywhere."""

import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from tritonforge.server.settings import Settings, from_environment


def test_without_anything_given_workers_use_this_interpreter() -> None:
    settings = from_environment(environment={})
    assert settings.python == sys.executable
    assert settings.state_dir == Path.cwd() / ".tritonforge"
    assert settings.target == "h100"


def test_the_environment_comes_before_the_defaults() -> None:
    given = {"TRITONFORGE_PYTHON": "/opt/model/bin/python", "TRITONFORGE_STATE_DIR": "/var/state"}
    settings = from_environment(environment=given)
    assert (settings.python, settings.state_dir) == ("/opt/model/bin/python", Path("/var/state"))


def test_the_command_line_comes_before_the_environment() -> None:
    given = {"TRITONFORGE_PYTHON": "/opt/model/bin/python", "TRITONFORGE_STATE_DIR": "/var/state"}
    settings = from_environment(python="/mine/python", state_dir="/mine/state", environment=given)
    assert (settings.python, settings.state_dir) == ("/mine/python", Path("/mine/state"))


def test_an_empty_value_counts_as_none() -> None:
    settings = from_environment(python="", environment={"TRITONFORGE_PYTHON": "", "TRITONFORGE_STATE_DIR": ""})
    assert settings.python == sys.executable
    assert settings.state_dir == Path.cwd() / ".tritonforge"


def test_a_relative_interpreter_is_the_one_of_the_current_folder_wherever_workers_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = from_environment(python=".venv/bin/python", environment={})
    assert settings.python == str(tmp_path / ".venv" / "bin" / "python")


def test_the_link_of_a_virtual_environment_is_kept(tmp_path: Path) -> None:
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    assert from_environment(python=str(link), environment={}).python == str(link)


def test_a_bare_name_is_left_to_be_found_on_path() -> None:
    assert from_environment(python="python3", environment={}).python == "python3"


def test_a_home_folder_is_expanded_where_no_shell_has_done_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    settings = from_environment(environment={"TRITONFORGE_PYTHON": "~/v/python", "TRITONFORGE_STATE_DIR": "~/state"})
    assert settings.python == "/home/someone/v/python"
    assert settings.state_dir == Path("/home/someone/state")


def test_the_home_of_an_unknown_user_is_no_crash() -> None:
    assert from_environment(state_dir="~no.such.user/state", environment={}).state_dir.name == "state"


def test_without_anything_given_no_sandbox_is_required_and_no_folder_opened() -> None:
    settings = from_environment(environment={})
    assert settings.require_sandbox is False
    assert settings.allow_read == ()


@pytest.mark.parametrize(("value", "required"), [("1", True), ("yes", True), ("0", False), ("", False)])
def test_a_sandbox_can_be_required_by_the_environment(value: str, required: bool) -> None:
    assert from_environment(environment={"TRITONFORGE_REQUIRE_SANDBOX": value}).require_sandbox is required


def test_a_sandbox_that_is_required_by_the_command_line_is_not_waived_by_the_environment() -> None:
    settings = from_environment(require_sandbox=True, environment={"TRITONFORGE_REQUIRE_SANDBOX": "0"})
    assert settings.require_sandbox is True


def test_folders_of_the_environment_are_opened_beside_those_of_the_command_line() -> None:
    settings = from_environment(
        allow_read=["/mine", "/mine too"], environment={"TRITONFORGE_ALLOW_READ": "/first:/second"}
    )
    assert settings.allow_read == (Path("/mine"), Path("/mine too"), Path("/first"), Path("/second"))


@pytest.mark.parametrize("value", ["", ":", "::"])
def test_empty_parts_of_the_environment_open_nothing(value: str) -> None:
    assert from_environment(environment={"TRITONFORGE_ALLOW_READ": value}).allow_read == ()


def test_a_folder_to_be_read_is_found_from_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    settings = from_environment(allow_read=["kernels"], environment={"TRITONFORGE_ALLOW_READ": "~/lib"})
    assert settings.allow_read == (tmp_path / "kernels", Path("/home/someone/lib"))


def test_the_pool_and_its_limits_are_settings() -> None:
    settings = from_environment(spares=0, gpu_spares=6, idle_s=30.0, memory_gb=1.5, gpu_memory_gb=20, environment={})
    assert (settings.spares, settings.gpu_spares, settings.idle_s) == (0, 6, 30.0)
    assert settings.limits.memory_bytes == 1_500_000_000
    assert settings.limits.gpu_memory_bytes == 20 * 10**9


def test_without_anything_given_the_pool_has_its_defaults() -> None:
    assert from_environment(environment={}) == Settings(state_dir=Path(".tritonforge").absolute())


def test_settings_are_immutable_and_refuse_unknown_names() -> None:
    with pytest.raises(ValidationError):
        Settings().__setattr__("target", "h200")
    with pytest.raises(ValidationError):
        Settings.model_validate({"pyhton": "python3"})
