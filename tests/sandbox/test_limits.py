"""What a worker gets to see of its parent's environment."""

import pytest

from tritonforge.sandbox.limits import Limits, worker_environment


@pytest.mark.parametrize(
    "name",
    [
        "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "SSH_AUTH_SOCK", "PYTHONPATH", "PYTHONSTARTUP", "LD_PRELOAD",
        "TRITON_INTERPRET", "TRITON_CACHE_DIR_OTHER", "TRITONFORGE_STATE_DIR", "MY_CUDA_TOKEN", "http_proxy",
    ],
)  # fmt: skip
def test_a_variable_that_is_not_listed_is_withheld(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    assert name not in worker_environment("/scratch", interpret=False)


@pytest.mark.parametrize(
    "name", ["PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"]
)
def test_what_finding_the_gpu_stack_needs_is_passed_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "value")
    assert worker_environment("/scratch", interpret=False)[name] == "value"


def test_a_worker_has_a_path_even_where_its_parent_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PATH")
    assert worker_environment("/scratch", interpret=False)["PATH"]


def test_caches_and_temporary_files_go_to_the_scratch_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/elsewhere")
    monkeypatch.setenv("TRITON_CACHE_DIR", "/elsewhere")
    environment = worker_environment("/scratch", interpret=False)
    assert environment["TMPDIR"] == "/scratch"
    assert environment["TRITON_CACHE_DIR"] == "/scratch/triton-cache"


def test_only_the_interpreter_role_interprets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "TRITON_INTERPRET" not in worker_environment("/scratch", interpret=False)
    assert worker_environment("/scratch", interpret=True)["TRITON_INTERPRET"] == "1"


def test_limits_are_wide_enough_for_a_cold_import() -> None:
    limits = Limits()
    assert limits.start_s >= 60
    assert limits.request_s >= 60
