"""The examples, and settings that write nothing into the checkout."""

from pathlib import Path

import pytest

from tritonforge.server.settings import Settings

EXAMPLES = Path(__file__).parents[2] / "examples"
SIN = {"kernel": str(EXAMPLES / "sin" / "candidate.py"), "task": str(EXAMPLES / "sin" / "task.py")}
NO_GPU = not any(Path(path).exists() for path in ("/dev/nvidiactl", "/dev/dxg"))

without_gpu = pytest.mark.skipif(not NO_GPU, reason="says what is unavailable without a GPU; this machine has one")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state_dir=tmp_path / "state")
