"""Instructions, lines, loops and live registers of recorded and of made-up machine code."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tritonforge.profiling.compiler import sass, sass_flow, sass_liveness
from tritonforge.profiling.compiler.sass import Code, Instruction, Origin
from tritonforge.profiling.compiler.sass_facts import SassDetails, read

FOLDER = Path(__file__).parents[2] / "recordings" / "sass"
PTX = """\
.file 1 "/tmp/k.py"
.file 2 "/lib/standard.py"
.loc 1 6 0
.loc 2 263 15 // standard.py:263:15 @[ standard.py:293:36 @[ k.py:9:15 ] ]
.loc 2 41 15 // standard.py:41:15 @[ k.py:9:15 ]
.loc 2 41 15 // standard.py:41:15 @[ k.py:11:15 ]
"""
MARKER = '\t//## File "{}", line {}\n'
COUNTED = ("sin_baseline", "softmax_baseline", "matmul_short", "attention")

Recorded = Callable[[str], str]


def code_of(*rows: str, ptx: str = PTX) -> Code:
    """Rows that are instructions get an offset, a semicolon and spaces around."""
    offset, lines = 0, list[str]()
    for row in rows:
        if row.endswith(":") or "//##" in row:
            lines.append(row)
        else:
            lines.append(f"        /*{offset:04x}*/                   {row} ;")
            offset += 16
    return sass.parse("\n".join(lines), ptx)


def origins(text: str) -> list[Origin]:
    return [instruction.origin for instruction in code_of(*text.splitlines()).instructions]


def looped(code: Code) -> list[bool]:
    return sass_flow.in_loops(sass_flow.flow(code))


def read_recording(name: str, recorded: Recorded, spill_bytes: int | None = 0) -> SassDetails:
    found = read((FOLDER / f"{name}.sass").read_text(), recorded(f"{name}.ptx"), spill_bytes)
    assert found is not None
    return found


def test_an_instruction_comes_apart_and_padding_is_left_out() -> None:
    code = code_of("@!P0 LDG.E.128 R4, desc[UR4][R2.64+0x10]", "EXIT", "NOP", "NOP")
    first, last = code.instructions
    assert first[:4] == (0, "!P0", "LDG.E.128", "R4, desc[UR4][R2.64+0x10]")
    assert (last.opcode, last.guard) == ("EXIT", None)


@pytest.mark.parametrize(
    ("markers", "origin"),
    [
        (MARKER.format("/tmp/k.py", 9), Origin(9, None)),
        # No frames: what the PTX says, where it was inlined in one line only.
        (MARKER.format("/lib/standard.py", 263), Origin(9, "standard.py:263")),
        (MARKER.format("/lib/standard.py", 41), Origin(None, "standard.py:41")),
        (MARKER.format("/lib/standard.py", 7), Origin(None, "standard.py:7")),
        (
            '\t//## File "/lib/standard.py", line 41 inlined at "/lib/standard.py", line 5\n'
            '\t//## File "/lib/standard.py", line 5 inlined at "/tmp/k.py", line 11\n',
            Origin(11, "standard.py:41"),
        ),
        ("", Origin(None, None)),
    ],
)
def test_a_marker_means_a_line_of_the_kernel_and_a_place_of_the_library(markers: str, origin: Origin) -> None:
    assert origins(f"{markers}EXIT\n") == [origin]


def test_a_marker_holds_until_the_next_one() -> None:
    text = f"{MARKER.format('/tmp/k.py', 8)}MOV R1, R2\nMOV R2, R3\n{MARKER.format('/tmp/k.py', 9)}EXIT\n"
    assert [origin.line for origin in origins(text)] == [8, 8, 9]


@pytest.mark.parametrize(
    ("opcode", "operands", "kind"),
    [
        ("HGMMA.64x64x16.F32", "R24, gdesc[UR8], R24", "tensor"),
        ("LDGSTS.E.BYPASS.128", "[R3], desc[UR4][R2.64]", "async_copy"),
        ("LDGDEPBAR", "", "barrier"),
        ("UTMALDG.2D", "[UR8], [UR4]", "tma"),
        ("IMAD.MOV.U32", "R2, RZ, RZ, R3", "move"),
        ("IMAD.WIDE", "R2, R4, 0x2, R2", "integer"),
        ("HFMA2.MMA", "R5, -RZ, RZ, 0, 0", "move"),
        ("HFMA2.BF16_V2", "R5, R4, R3, R2", "fp16"),
        ("F2FP.F16.F32.PACK_AB", "R4, R5, R4", "conversion"),
        ("MUFU.EX2", "R4, R4", "special"),
        ("QUUX.NEW", "R4", "other"),
    ],
)
def test_each_instruction_has_its_kind(opcode: str, operands: str, kind: str) -> None:
    assert sass.kind(Instruction(0, None, opcode, operands, Origin(None, None))) == kind


@pytest.mark.parametrize(
    ("opcode", "width"),
    [
        ("LDG.E.128", 16),
        ("LDG.E", 4),
        ("STG.E.U16", 2),
        ("LDL.LU.64", 8),
        ("LDSM.16.M88.4", 16),
        ("LDSM.16.MT88.2", 8),
        ("STSM.16.M88", 4),
        ("LDS.U8", 1),
        ("LDG.E.64.STRONG.GPU", 8),
    ],
)
def test_an_access_has_its_width(opcode: str, width: int) -> None:
    assert sass.width_bytes(Instruction(0, None, opcode, "", Origin(None, None))) == width


def test_what_lies_between_a_label_and_a_branch_back_to_it_is_a_loop() -> None:
    code = code_of("MOV R1, R2", ".L_x_0:", "FADD R1, R1, R1", "@P0 BRA `(.L_x_0)", "EXIT")
    assert looped(code) == [False, True, True, False]


def test_a_branch_back_from_a_part_moved_to_the_end_is_no_loop() -> None:
    code = code_of(
        "@P0 BRA `(.L_x_1)", ".L_x_0:", "FADD R1, R1, R1", "EXIT", ".L_x_1:", "FMUL R1, R1, R1", "BRA `(.L_x_0)"
    )
    assert not any(looped(code))


def test_the_branch_to_itself_behind_the_end_is_no_loop() -> None:
    assert looped(code_of("EXIT", ".L_x_0:", "BRA `(.L_x_0)")) == [False, False]


def test_what_a_loop_calls_is_in_the_loop_and_what_is_called_twice_is_not() -> None:
    body = ["FMUL R1, R1, R1", "RET.REL.NODEC R2 `(k)"]
    in_loop = code_of(".L_x_0:", "CALL.REL.NOINC `($f)", "@P0 BRA `(.L_x_0)", "EXIT", "$f:", *body)
    assert looped(in_loop) == [True, True, False, True, True]
    twice = code_of("CALL.REL.NOINC `($f)", "CALL.REL.NOINC `($f)", "EXIT", "$f:", *body)
    assert not any(looped(twice))


def test_threads_meet_where_their_barrier_says() -> None:
    code = code_of("BSSY B0, `(.L_x_1)", "@P0 BRA `(.L_x_0)", "BSYNC B0", ".L_x_0:", "EXIT", ".L_x_1:", "EXIT")
    assert sass_flow.flow(code).successors == [[1], [3, 2], [4], [], []]


@pytest.mark.parametrize("name", COUNTED)
def test_live_registers_are_those_that_nvdisasm_counts(name: str) -> None:
    code = sass.parse((FOLDER / f"{name}.sass").read_text(), "")
    counts = [int(count) for count in (FOLDER / f"{name}.live").read_text().split()]
    assert sass_liveness.live(code, sass_flow.flow(code)).counts == counts


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        # R1, the stack pointer, is always among them.
        (["LDG.E.128 R4, desc[UR4][R8.64]", "STG.E.128 desc[UR4][R8.64], R4", "EXIT"], 7),
        (["DFMA R4, R6, R8, R10", "STG.E.64 desc[UR4][R4.64], R4", "EXIT"], 9),
        (["IMAD.WIDE R4, R6, 0x4, R8", "STG.E.64 desc[UR4][R4.64], R4", "EXIT"], 6),
        (["HMMA.16816.F32 R4, R8, R12, R4", "STG.E.128 desc[UR4][R14.64], R4", "EXIT"], 13),
        (["HGMMA.64x64x16.F32 R24, gdesc[UR8], R24", "STG.E desc[UR4][R2.64], R24", "EXIT"], 35),
        # A guarded write leaves what was there.
        (["@P0 MOV R4, R5", "STG.E desc[UR4][R2.64], R4", "EXIT"], 5),
        (["MOV R4, R5", "STG.E desc[UR4][R2.64], R4", "EXIT"], 5),
    ],
)
def test_an_operand_takes_as_many_registers_as_its_instruction_says(rows: list[str], count: int) -> None:
    code = code_of(*rows)
    assert sass_liveness.live(code, sass_flow.flow(code)).counts[0] == count


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (["BRX R2 -0x100", "EXIT"], "when it runs"),
        (["CALL.REL.NOINC `($f)", "EXIT", "$f:", "RET.REL.NODEC R2 `(k)"], "calls functions"),
        (["FADD R1, R1, R1"] * 20_001, "more than 20000"),
    ],
)
def test_live_registers_that_can_not_be_counted_are_unknown_with_the_reason(rows: list[str], why: str) -> None:
    code = code_of(*rows)
    found = sass_liveness.live(code, sass_flow.flow(code))
    assert found.counts == []
    assert why in str(found.reason)


def test_facts_of_attention_are_those_of_its_code(recorded: Recorded) -> None:
    facts = read_recording("attention", recorded).facts
    assert (facts.instructions, facts.in_loops, facts.mix["tensor"]) == (682, 282, 8)
    copies = next(access for access in facts.accesses if access.kind == "async copy")
    assert (copies.space, copies.width_bytes, copies.count, copies.in_loops) == ("global to shared", 16, 24, 8)
    assert facts.loop_lines[0].instructions == max(line.instructions for line in facts.loop_lines)
    assert ("standard.py:263", 73) in {(line.library, line.line) for line in facts.loop_lines}
    assert (facts.live_registers, facts.live_absent) == (91, None)
    assert facts.live_lines[0].live_registers == 91
    assert (facts.local_lines, facts.spills) == ([], None)
    assert facts.library_instructions > 0
    assert facts.without_line == 0


def test_local_memory_is_a_spill_only_where_ptxas_says_so(recorded: Recorded) -> None:
    (line,) = read_recording("sin_baseline", recorded).facts.local_lines
    assert (line.line, line.loads, line.stores, line.in_loop) == (17, 3, 2, True)
    assert [read_recording("sin_baseline", recorded, spilled).facts.spills for spilled in (0, 8, None)] == [
        False,
        True,
        None,
    ]


def test_a_kernel_that_calls_functions_has_all_facts_but_live_registers(recorded: Recorded) -> None:
    facts = read_recording("atomics", recorded).facts
    assert facts.instructions == 212
    assert facts.live_registers is None
    assert "calls functions" in str(facts.live_absent)


def test_the_table_has_every_instruction_once(recorded: Recorded) -> None:
    facts, sites = read_recording("matmul_short", recorded)
    assert sum(site.count for site in sites) == facts.instructions
    assert sum(site.count for site in sites if site.in_loop) == facts.in_loops
    assert {site.width_bytes for site in sites if site.kind == "async_copy"} == {16}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nvdisasm fatal: no",
        "/*0000*/ " * 50_000,
        MARKER.format("a" * 100_000, 1) * 3,
        '//## File "' * 20_000,
        "/*0000*/ BRA " + "`(" * 100_000 + " ;",
        "/*0000*/ LDG.E.128 " + "R1, " * 50_000 + " ;",
    ],
)
def test_text_without_instructions_has_no_facts(text: str) -> None:
    assert read(text, PTX, 0) is None


@pytest.mark.parametrize(
    "text",
    [
        "".join(f".L{n}:\n/*{n:04x}*/ @P0 BRA `(.L{19_999 - n}) ;\n" for n in range(20_000)),
        "".join(f"/*{n:04x}*/ HGMMA.64x999x16.F32 R999, R99, R{n % 999} ;\n" for n in range(20_000)),
        "".join(f".L{n}:\n/*{n:04x}*/ CALL.REL `(.L{n + 1}) ;\n" for n in range(20_000)),
        "/*0000*/ EXIT ;\n" * 60_000,
    ],
)
def test_hostile_code_is_read_in_passing(text: str) -> None:
    assert read(text, ".loc 1 1 1 // " + "a:1:1 @[ " * 20_000, 0) is not None
