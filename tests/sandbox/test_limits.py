"""What a worker gets to see of its parent's environment."""

from pathlib import Path

import pytest

from tritonforge.sandbox.limits import Limits, worker_environment


@pytest.mark.parametrize(
    "name",
    [
        "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "SSH_AUTH_SOCK", "PYTHONPATH", "PYTHONSTARTUP", "LD_PRELOAD",
        "TRITON_INTERPRET", "TRITON_CACHE_DIR_OTHER", "TRITONFORGE_STATE_DIR", "MY_CUDA_TOKEN", "http_proxy",
        "NVIDIA_API_KEY", "CUDA_TOKEN", "CONDA_PASSWORD", "NVIDIA_CREDENTIALS",
    ],
)  # fmt: skip
def test_a_variable_that_is_not_listed_is_withheld(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    assert name not in worker_environment("/scratch", interpret=False)


@pytest.mark.parametrize(
    "name", ["PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"]
)
def test_what_finding_the_gpu_stack_needs_is_passed_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "value")
    assert worker_environment("/scratch", interpret=False)[name] == "value"


def test_a_worker_has_a_path_even_where_its_parent_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PATH")
    assert worker_environment("/scratch", interpret=False)["PATH"]


def test_home_and_temporary_files_are_a_folder_that_the_worker_may_write_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("TMPDIR", "/elsewhere")
    environment = worker_environment("/scratch", interpret=False)
    assert environment["HOME"] == environment["TMPDIR"] == "/scratch"


def test_the_triton_cache_of_the_user_is_not_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", "/home/someone/cache")
    monkeypatch.setenv("TRITON_HOME", "/home/someone")
    assert "/home/someone" not in " ".join(worker_environment("/scratch", interpret=False).values())


def test_a_worker_knows_who_it_is_without_a_table_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "someone")
    assert worker_environment("/scratch", interpret=False)["LOGNAME"] == "worker"


def test_pools_of_threads_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "64")
    environment = worker_environment("/scratch", interpret=False)
    assert environment["OMP_NUM_THREADS"] == environment["MKL_NUM_THREADS"] == "32"
    # A preloader must have one thread when it forks.
    assert environment["OPENBLAS_NUM_THREADS"] == "1"


@pytest.mark.parametrize("cores", [1, None])
def test_there_is_a_thread_even_where_cores_are_few_or_unknown(
    monkeypatch: pytest.MonkeyPatch, cores: int | None
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    assert worker_environment("/scratch", interpret=False)["OMP_NUM_THREADS"] == "1"


def test_only_the_interpreter_role_interprets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "TRITON_INTERPRET" not in worker_environment("/scratch", interpret=False)
    assert worker_environment("/scratch", interpret=True)["TRITON_INTERPRET"] == "1"


def test_limits_are_wide_enough_for_a_cold_import() -> None:
    limits = Limits()
    assert limits.start_s >= 60
    assert limits.request_s >= 60


def test_memory_without_a_limit_of_its_own_is_half_of_what_the_machine_has() -> None:
    total = Path("/proc/meminfo").read_text().split()[1]
    assert Limits().host_memory_bytes() == pytest.approx(int(total) * 1024 / 2, rel=0.01)
    assert Limits(memory_bytes=5).host_memory_bytes() == 5


def test_what_a_worker_sets_on_itself_is_what_was_chosen() -> None:
    chosen = {"scratch_bytes": 1, "file_bytes": 2, "processes": 3, "descriptors": 4, "cpu_s": 5}
    assert Limits.model_validate(chosen).resources() == chosen
