"""Measured instructions found in compiled code, what they wait for, and the operations of a line."""

from pathlib import Path

import pytest

from tritonforge.profiling.compiler import join, sass
from tritonforge.profiling.compiler.join import Producer, Producers
from tritonforge.profiling.compiler.sass import Code

FOLDER = Path(__file__).parents[2] / "recordings"
PTX = '.file 1 "/k.py"\n.loc 1 1 0\n'
LONG, SHORT = "long_scoreboard", "short_scoreboard"


def code_of(text: str) -> Code:
    """Rows are `LINE INSTRUCTION`, or labels."""
    rows, offset = list[str](), 0
    for row in filter(None, map(str.strip, text.splitlines())):
        if row.endswith(":"):
            rows.append(row)
            continue
        line, _, instruction = row.partition(" ")
        rows += [f'//## File "/k.py", line {line}', f"        /*{offset:04x}*/   {instruction} ;"]
        offset += 16
    return sass.parse("\n".join(rows), PTX)


def producer_of_last(text: str, stall: str = LONG) -> Producer | None:
    """Of the last instruction but the exit."""
    code = code_of(f"{text}\n99 EXIT")
    return Producers(code).of(len(code.instructions) - 2, stall)


def recorded(name: str) -> Code:
    return sass.parse((FOLDER / f"sass/{name}.sass").read_text(), (FOLDER / f"compiler/{name}.ptx").read_text())


STRAIGHT = "5 LDG.E R4, [R2.64]\n6 FADD R5, R4, 1\n7 STG.E [R2.64], R5\n8 EXIT"


OPCODES = ["LDG", "FADD", "STG", "EXIT"]
LINES: list[str | None] = ["5", "6", "7", "8"]


@pytest.mark.parametrize(
    ("offsets", "roots", "places", "found"),
    [
        ([0, 16, 32, 48], OPCODES, LINES, [0, 1, 2, 3]),
        # What was not executed is not listed.
        ([0, 32], ["LDG", "STG"], ["5", "7"], [0, 2]),
        # Opcodes or lines may be unknown, not both.
        ([0, 16, 32, 48], [""] * 4, LINES, [0, 1, 2, 3]),
        ([0, 16, 32, 48], [""] * 4, ["5", None, "7", None], [0, 1, 2, 3]),
        ([0, 16, 32, 48], OPCODES, [None] * 4, [0, 1, 2, 3]),
        ([0, 16, 32, 48], [""] * 4, ["5", None, None, None], "the report tells too few lines and instructions"),
        ([0, 16], ["LDG", "FMUL"], LINES[:2], "at 0x10 the compiled launch has FADD, and the measured one FMUL"),
        ([0, 64], ["LDG", "EXIT"], LINES[:2], "at 0x40 the compiled launch has nothing, and the measured one EXIT"),
        ([0, 64], ["", ""], LINES[:2], "at 0x40 the compiled launch has nothing, and the measured one an instruction"),
        ([0, 16], ["", ""], ["5", "7"], "at 0x10 the compiled launch has line 6, and the measured one 7"),
        (
            [0, 16],
            OPCODES[:2],
            ["5", "standard.py:170"],
            "at 0x10 the compiled launch has line 6, and the measured one s",
        ),
    ],
)
def test_measured_instructions_are_those_of_the_compiler_or_it_says_where_not(
    offsets: list[int], roots: list[str], places: list[str | None], found: list[int] | str
) -> None:
    matched = join.matched(code_of(STRAIGHT), offsets, roots, places)
    if isinstance(found, str):
        assert isinstance(matched, str)
        assert matched.startswith(found)
    else:
        assert matched == found


def test_functions_with_offsets_of_their_own_are_not_matched() -> None:
    code = code_of(STRAIGHT)
    twice = Code(code.instructions * 2, {})
    assert join.matched(twice, [0], ["LDG"], ["5"]) == "the compiled launch has several functions"


@pytest.mark.parametrize(
    ("text", "stall", "found"),
    [
        pytest.param("5 LDG.E R4, [R2.64]\n6 FADD R5, R4, 1", LONG, Producer(5, "LDG.E"), id="load"),
        pytest.param("5 LDG.E R4, [R2.64]\n6 FADD R5, R4, 1", SHORT, None, id="not of shared memory"),
        pytest.param("5 LDS R4, [R2]\n6 FADD R5, R4, 1", SHORT, Producer(5, "LDS"), id="shared load"),
        pytest.param("5 LDS R4, [R2]\n6 FADD R5, R4, 1", LONG, None, id="not of global memory"),
        pytest.param("5 MUFU.EX2 R4, R2\n6 FADD R5, R4, 1", SHORT, Producer(5, "MUFU.EX2"), id="function"),
        pytest.param("5 LDG.E R4, [R2.64]\n6 FADD R5, R4, 1", "barrier", None, id="another stall"),
        pytest.param("5 LDG.E.128 R4, [R2.64]\n6 FADD R5, R7, 1", LONG, Producer(5, "LDG.E.128"), id="wide"),
        pytest.param("5 LDG.E R4, [R2.64]\n6 FADD R5, R8, 1", LONG, None, id="another register"),
        pytest.param("5 LDG.E R4, [R2.64]\n6 MOV R4, R9\n7 FADD R5, R4, 1", LONG, None, id="overwritten"),
        pytest.param("5 LDG.E R4, [R2.64]\n6 FADD R6, R4, 1\n7 FADD R5, R4, 1", LONG, None, id="has arrived"),
        pytest.param(
            "5 LDG.E.128 R4, [R2.64]\n6 LDG.E R8, [R2.64]\n7 FADD R9, R4, 1\n8 FADD R5, R5, R8",
            LONG,
            Producer(6, "LDG.E"),
            id="another part has arrived",
        ),
        pytest.param(
            "5 LDG.E R4, [R2.64]\n6 LDG.E R5, [R2.64]\n7 FADD R5, R4, R5", LONG, None, id="two lines: ambiguous"
        ),
        pytest.param(
            "5 LDG.E R4, [R2.64]\n5 LDG.E.64 R6, [R2.64]\n7 FADD R5, R4, R6", LONG, Producer(5, "LDG"), id="one line"
        ),
        pytest.param(
            "5 LDGSTS.E.128 [R3], [R2.64]\n6 LDGDEPBAR\n7 DEPBAR.LE SB0, 0x1",
            LONG,
            Producer(5, "LDGSTS.E.128"),
            id="asynchronous copies",
        ),
        pytest.param(
            "5 LDGSTS.E [R3], [R2.64]\n6 LDGSTS.E [R3], [R2.64]\n7 DEPBAR.LE SB0, 0x1", LONG, None, id="copies of two"
        ),
        pytest.param(
            "5 LDG.E R4, [R2.64]\n5 @P0 BRA `(.L_1)\n6 LDG.E R4, [R8.64]\n.L_1:\n7 FADD R5, R4, 1",
            LONG,
            None,
            id="two ways",
        ),
        pytest.param(
            "5 LDG.E R4, [R2.64]\n5 @P0 BRA `(.L_1)\n6 MOV R9, R8\n.L_1:\n7 FADD R5, R4, 1",
            LONG,
            Producer(5, "LDG.E"),
            id="through a branch",
        ),
        pytest.param(
            "5 LDG.E R4, [R2.64]\n6 CALL.REL.NOINC `(.L_1)\n.L_1:\n7 FADD R5, R4, 1", LONG, None, id="behind a call"
        ),
        pytest.param("5 LDG.E R4, [R2.64]\n6 @P0 BRX R8 -0x10\n7 FADD R5, R4, 1", LONG, None, id="unknown jumps"),
        pytest.param("5 LDG.E.64 R4, [R2.64]\n6 MOV R5, R8\n7 FADD R9, R4, 1", LONG, None, id="partly overwritten"),
        pytest.param("5 LDGSTS.E [R3], [R2.64]\n7 DEPBAR.LE SB0, 0x1", SHORT, None, id="copies are of global memory"),
    ],
)
def test_a_stalled_instruction_waits_for_what_writes_its_registers(
    text: str, stall: str, found: Producer | None
) -> None:
    assert producer_of_last(text, stall) == found


def test_a_load_ahead_is_found_around_the_loop() -> None:
    code = code_of(
        "4 MOV R4, RZ\n.L_1:\n6 FADD R5, R4, R5\n7 LDG.E R4, [R2.64]\n8 IADD3 R2, R2, 4, RZ\n5 @P0 BRA `(.L_1)\n9 EXIT"
    )
    assert Producers(code).of(1, LONG) == Producer(7, "LDG.E")


def test_a_load_without_a_line_is_no_producer() -> None:
    code = code_of("0 LDG.E R4, [R2.64]\n6 FADD R5, R4, 1\n9 EXIT")
    assert Producers(code).of(1, LONG) is None


def test_recorded_code_waits_for_its_loads() -> None:
    """The query's tile is loaded on line 63 and goes to shared memory."""
    code = recorded("attention")
    producers = Producers(code)
    found = {
        (instruction.root, instruction.origin.line, producer)
        for number, instruction in enumerate(code.instructions)
        if (producer := producers.of(number, LONG))
    }
    assert found == {("STS", 63, Producer(63, "LDG.E.128"))}


def test_hostile_code_is_searched_in_passing() -> None:
    # Each instruction is reached from all others, with other registers.
    rows = "".join(
        f".L{n}:\n/*{n * 16:05x}*/ @P0 BRA `(.L{(n * 7919) % 15_000}) ;\n"
        f"/*{n * 16 + 8:05x}*/ FADD R{n % 250}, R{n % 249}, R{n % 248} ;\n"
        for n in range(15_000)
    )
    code = sass.parse(rows, PTX)
    producers = Producers(code)
    assert [producers.of(number, LONG) for number in range(1, 30_000, 1_000)] == [None] * 30


TTGIR = """\
module {
  tt.func public @k(%x: !tt.ptr<f32> loc("x"(#loc))) attributes {noinline = false} {
    %c = arith.constant 1.0 : f32 loc(#loc4)
    %a = tt.addptr %x, %i : tensor<64x!tt.ptr<f32>, #b>, tensor<64xi32, #b> loc(#loc4)
    %v = tt.load %a : tensor<64x!tt.ptr<f32>, #b> loc(#loc4)
    %e = arith.mulf %v, %v : tensor<64xf32, #b> loc(#loc5)
    %f = math.exp2 %e : tensor<64xf32, #b> loc(#loc5)
    %w:3 = ttng.warp_group_dot_wait %p, %q {pendings = 0 : i32} : tensor<64x64xf32, #m> loc(#loc6)
    %s = arith.addf %f, %f : tensor<64xf32, #b> loc(#loc6)
    %m = arith.maxnumf %v, %v : f32 loc(callsite(#loc8 at #loc7))
    tt.store %x, %m : !tt.ptr<f32> loc(#loc9)
    tt.return loc(#loc9)
  } loc(#loc)
}
#loc = loc("/k.py":3:0)
#loc4 = loc("/k.py":4:8)
#loc5 = loc("/k.py":5:8)
#loc6 = loc("/k.py":6:8)
#loc7 = loc("/k.py":7:8)
#loc8 = loc("/lib/standard.py":170:8)
#loc9 = loc("/k.py":9:8)
"""


def test_a_line_has_its_main_operations_or_else_its_arithmetic() -> None:
    assert join.operations(TTGIR) == {
        4: ["tt.load"],
        5: ["math.exp2", "arith.mulf"],
        6: ["ttng.warp_group_dot_wait"],
        7: ["arith.maxnumf"],
        9: ["tt.store"],
    }


def test_operations_without_locations_have_no_line() -> None:
    assert join.operations((FOLDER / "compiler/attention.ttgir").read_text()) == {}
    assert join.operations("") == {}
