"""Campaigns side by side: each by itself, and on the kernels that all of them measured."""

from pathlib import Path

from tests.server.campaign.made_up_records import gained, made
from tests.server.campaign.test_report import cells
from tritonforge.server.campaign.model import CaseTime
from tritonforge.server.campaign.report import About, compared

FULL = [gained("a", 2.0, attempts=4), gained("b", 1.5, attempts=2), made("c", "no_gain"), gained("only_here", 9.0)]
WITHOUT = [gained("a", 1.0), gained("b", 1.5), made("c", "no_gain"), made("only_here", "failed", cases=1)]
MANY = [gained(f"k{number}", 1.2 + number / 10) for number in range(8)]


def tables(text: str) -> list[list[list[str]]]:
    blocks = [block for block in text.split("\n\n") if block.startswith("|")]
    return [[cells(line) for line in block.splitlines()[2:]] for block in blocks]


def test_each_campaign_has_a_row() -> None:
    first, _ = tables(compared({"full": FULL, "no-profile": WITHOUT}))
    assert [row[:4] for row in first] == [["`full`", "4", "4", "3"], ["`no-profile`", "4", "3", "1"]]
    assert first[0][4].startswith("75.0 (")
    assert first[0][6] == "4.167"
    assert first[0][8] == "1.5"


def test_the_difference_is_taken_on_the_kernels_that_all_measured() -> None:
    text = compared({"full": FULL, "no-profile": WITHOUT})
    _, paired = tables(text)
    # Of a, b and c: 2, 1.5, 1 against 1, 1.5, 1; the cube roots of 3, of 1.5, and of one half.
    assert "known in all of them: 3." in text
    assert paired[0][:2] == ["`full`", "1.442"]
    assert paired[0][3:] == ["", "", "", "", ""]
    assert paired[1][:2] == ["`no-profile`", "1.145"]
    assert paired[1][3:] == ["0.794", "", "0", "2", "1"]
    assert "fewer than 6 have no interval" in text


def test_a_difference_has_an_interval_of_its_own() -> None:
    halved = [gained(record.name, (record.speedup or 0) / 2) for record in MANY]
    text = compared({"full": MANY, "halved": halved, "shuffled": MANY[::-1]})
    _, paired = tables(text)
    assert "intervals are bootstraps" in text
    # However wide the speed-ups scatter, each is the half of its own.
    assert paired[1][3:] == ["0.500", "0.500 to 0.500", "0", "0", "8"]
    assert paired[2][3:] == ["1.000", "1.000 to 1.000", "0", "8", "0"]
    assert paired[0][2] != "1.000 to 1.000"


def test_campaigns_with_no_kernel_in_common_are_told_apart() -> None:
    text = compared({"full": FULL[:1], "x": WITHOUT[1:]})
    assert "There is no kernel whose speed-up is known in all of them." in text


def test_campaigns_without_a_rate_say_why() -> None:
    alone = tables(compared({"alone": [made("a", "measured")]}))
    assert alone[0][0][4:] == ["", "", "", "", "", "no rate: no agent was at work"]
    assert "There are none." in compared({})
    assert tables(compared({"empty": [], "full": FULL}))[0][0][-1] == "no rate: there are no artefacts"


def test_kernels_that_were_not_measured_alike_are_pointed_out() -> None:
    here = [gained("a", 2.0, gpu="H200"), gained("b", 2.0, gpu="H200")]
    there = [gained("a", 2.0, gpu="H100"), gained("b", 2.0, gpu="H200", baseline=[CaseTime(case="z", device_us=1.0)])]
    said = "Not alike: 1 of them were measured on GPUs of different names; 1 were timed in different cases."
    assert said in compared({"here": here, "there": there})
    assert "Not alike" not in compared({"here": here, "again": here})


def test_what_figures_leave_out_and_folders_that_differ_are_told() -> None:
    here, there = Path("/one/kernels"), Path("/two/kernels")
    about = {"full": About(here, 0, []), "x": About(here, 12, [f"k|{number}" for number in range(10)])}
    text = compared({"full": FULL, "x": WITHOUT}, about)
    assert "- `x` is not through with 12 of its artefacts, which are in no figure; of 10 the record is there" in text
    assert "k\\|7 and more" in text
    assert "`full` is not" not in text
    assert "same folder" not in text
    text = compared({"full": FULL, "x": WITHOUT}, {"full": About(here, 0, []), "x": About(there, 0, [])})
    assert "over 2 folders (some of which have the same name)" in text
    assert "/one" not in text


def test_names_of_campaigns_stay_text() -> None:
    text = compared({"a|b\n# x": FULL, "other": FULL})
    assert "\n# x" not in text
    assert all(len({len(row) for row in rows}) == 1 for rows in tables(text))
