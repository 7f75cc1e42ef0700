"""The workshop."""

from pathlib import Path

import pytest

from tests.server.optimize.workshop import Workshop


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    return Workshop(tmp_path, monkeypatch)
