"""Launches that the compiler can't make: that is told, whatever becomes of its process."""

import pytest

from .conftest import Fail, Show
from .shown import TRITON


def test_specialized_warps_do_not_load_through_pointers(failure: Fail) -> None:
    told = failure("specialized_pointers")
    assert "PassManager::run failed" in told or "the process ended with -6" in told


def test_a_tile_that_is_divided_between_warps_is_not_stored_through_a_descriptor(failure: Fail) -> None:
    told = failure("divided_store")
    assert "PassManager::run failed" in told
    # Triton 3.7 divides what is loaded, too, and fails there.
    assert ("block and tensor types must match" if TRITON < (3, 7) else "descriptor block and tensor must") in told


@pytest.mark.skipif(TRITON >= (3, 7), reason="from Triton 3.7 on, a divided tile can't be loaded by descriptors either")
def test_it_is_stored_through_pointers(show: Show) -> None:
    assert show("divided_pointer_store").ir.warp_specialized
