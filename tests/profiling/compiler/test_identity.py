"""Same code, same hash: on real PTX of one kernel under two names, and of two block sizes."""

import re
from collections.abc import Callable

from tritonforge.profiling.compiler.identity import code_hash

DEBUG = """
\t.section\t.debug_abbrev
\t{
.b8 1                                   // Abbreviation Code
\t}
"""


def test_names_comments_and_blank_lines_do_not_change_the_hash(recorded: Callable[[str], str]) -> None:
    original, renamed = recorded("softmax_candidate.ptx"), recorded("softmax_renamed.ptx")
    assert original != renamed
    assert code_hash(original, 8, 32) == code_hash(renamed, 8, 32)


def test_another_block_size_changes_the_hash(recorded: Callable[[str], str]) -> None:
    assert code_hash(recorded("softmax_candidate.ptx"), 8, 32) != code_hash(recorded("softmax_shorter.ptx"), 8, 32)


def test_all_recorded_kernels_differ(recorded: Callable[[str], str]) -> None:
    names = ("sin_baseline", "sin_candidate", "softmax_baseline", "softmax_candidate", "atomics", "matmul_short")
    assert len({code_hash(recorded(f"{name}.ptx"), 4, 0) for name in names}) == len(names)


def test_launch_parameters_are_part_of_the_hash(recorded: Callable[[str], str]) -> None:
    ptx = recorded("sin_baseline.ptx")
    hashes = {code_hash(ptx, 4, 0), code_hash(ptx, 8, 0), code_hash(ptx, 4, 1024)}
    assert len(hashes) == 3
    assert all(re.fullmatch("[0-9a-f]{16}", found) for found in hashes)


def test_a_helpers_name_does_not_change_the_hash(recorded: Callable[[str], str]) -> None:
    ptx = recorded("atomics.ptx")
    renamed = ptx.replace("kernels_$_shifted_sin__fp32_c1_$_0", "other_$_wave__fp32_c1_$_0")
    assert renamed != ptx
    assert code_hash(renamed, 4, 0) == code_hash(ptx, 4, 0)


def test_a_kernel_may_be_named_like_an_instruction(recorded: Callable[[str], str]) -> None:
    ptx = recorded("sin_baseline.ptx")
    assert code_hash(ptx.replace("sin_kernel", "add"), 4, 0) == code_hash(ptx, 4, 0)
    assert code_hash(ptx.replace("sin_kernel", "r1"), 4, 0) == code_hash(ptx, 4, 0)


def test_debug_sections_and_the_ptx_version_do_not_change_the_hash(recorded: Callable[[str], str]) -> None:
    ptx = recorded("softmax_candidate.ptx")
    newer = ptx.replace(".version 8.7", ".version 9.0")
    assert newer != ptx
    assert code_hash(newer + DEBUG, 8, 32) == code_hash(ptx, 8, 32)


def test_one_changed_constant_changes_the_hash(recorded: Callable[[str], str]) -> None:
    ptx = recorded("softmax_candidate.ptx")
    changed = ptx.replace("0f3FB8AA3B", "0f3FB8AA3C", 1)
    assert changed != ptx
    assert code_hash(changed, 8, 32) != code_hash(ptx, 8, 32)
