# pyright: basic
# The worker's modules have no name that a type checker could resolve: they are loaded from their folder.
"""Reading a profiler's report through a stand-in for NVIDIA's module, which holds what the real one gave on an H200."""

import importlib
import json
import math
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from tritonforge.sandbox.profile_facts import InstructionTable, Report, ReportedLaunch, ReportedMetric

RECORDINGS = Path(__file__).parents[2] / "recordings" / "ncu"
FAKE = '''\
"""The part of Nsight Compute's ncu_report that is used; a report is JSON here."""
from _ncu_report import load

MsgType_NONE, MsgType_OK, MsgType_OPTIMIZATION, MsgType_WARNING, MsgType_ERR = range(5)
SpeedupType_UNKNOWN, SpeedupType_LOCAL, SpeedupType_GLOBAL = range(3)


class Metric:
    def __init__(self, value, unit, instances=(), ids=()):
        self._value, self._unit, self._instances, self._ids = value, unit, instances, ids

    def value(self, index=None):
        return self._value if index is None else self._instances[index]

    def unit(self):
        return self._unit

    def num_instances(self):
        return len(self._instances)

    def has_correlation_ids(self):
        return bool(self._ids)

    def correlation_ids(self):
        return Metric(None, "", self._ids)


class Source:
    def __init__(self, file, line):
        self._file, self._line = file, line

    def file_name(self):
        return self._file

    def line(self):
        return self._line


class Action:
    def __init__(self, found):
        self._found = found

    def name(self):
        return self._found["kernel"]

    def metric_names(self):
        return tuple(self._found["metrics"])

    def metric_by_name(self, name):
        if name not in self._found["metrics"]:
            return None
        value, unit, _ = self._found["metrics"][name]
        table = self._found.get("instances", {}).get(name, [])
        return Metric(value, unit, [count for _, count in table], [at for at, _ in table])

    def rule_results_as_dicts(self):
        return self._found["rules"]

    def source_info(self, address):
        _, file, line = self._found["code"][str(address)]
        return None if file is None else Source(file, line)

    def sass_by_pc(self, address):
        return self._found["code"][str(address)][0]


class Range:
    def __init__(self, actions):
        self._actions = actions

    def num_actions(self):
        return len(self._actions)

    def action_by_idx(self, index):
        return self._actions[index]


class Context:
    def __init__(self, ranges):
        self._ranges = ranges

    def num_ranges(self):
        return len(self._ranges)

    def range_by_idx(self, index):
        return self._ranges[index]


def load_report(path):
    return Context([Range([Action(found) for found in actions]) for actions in load(path)])
'''
NATIVE = "import json\n\ndef load(path):\n    with open(path) as file:\n        return json.load(file)\n"
CANDIDATE, STANDARD = "/work/candidate.py", "/venv/triton/language/standard.py"
START = 0x7F7A8D7A3700
# Instructions of the recorded softmax. The indent is as `sass_by_pc` gives it.
CODE = {
    START: ("      LDC R1, c[0x0][0x28]", CANDIDATE, 9),
    START + 0x2D0: ("      FMNMX R18, R14, R15, !PT", STANDARD, 170),
    START + 0x870: ("      FSETP.GEU.AND P5, PT, R14, -126, PT", CANDIDATE, 14),
    START + 0x10E0: ("@P1   EXIT", CANDIDATE, 16),
}


@pytest.fixture
def reader(worker, tmp_path):
    (tmp_path / "reader").mkdir()
    (tmp_path / "reader" / "ncu_report.py").write_text(FAKE)
    (tmp_path / "reader" / "_ncu_report.py").write_text(NATIVE)
    yield importlib.import_module("tritonforge_worker.ncu_reader")
    for name in ("ncu_report", "_ncu_report"):
        sys.modules.pop(name, None)


@pytest.fixture
def read(reader, tmp_path):
    """Reads ranges of launches; gives the model that the server makes of the reply, and the reply's blobs."""

    def get(*ranges, wanted=("gpu__time_duration.sum",), limit=10, texts=True):
        path = tmp_path / "report.ncu-rep"
        path.write_text(json.dumps(ranges))
        blobs = [b"another"]
        reply = reader.read(str(path), str(tmp_path / "reader"), list(wanted), limit, blobs, texts=texts)
        assert reply["launches"] == 1
        assert len(blobs) == 2
        return Report.model_validate({**reply, "launches": json.loads(blobs[1])})

    return get


def recorded(name, **more):
    return json.loads((RECORDINGS / f"{name}.json").read_text()) | more


def with_instructions(**more):
    instances = {
        "inst_executed": [(at, 65536) for at in CODE],
        "smsp__pcsamp_sample_count": [(START + 0x870, 7), (START, 2)],
        "smsp__pcsamp_warps_issue_stalled_wait": [(START, 1)],
        "launch__grid_dim_x": [(0, 8192)],
        **more,
    }
    code = {str(at): row for at, row in CODE.items()}
    return recorded("softmax_sections", instances=instances, code=code)


def test_wanted_metrics_are_read_with_their_units_and_no_others(read):
    wanted = ["gpu__time_duration.sum", "launch__func_cache_config", "no__such.sum"]
    (launch,) = read([recorded("matmul_sections")], wanted=wanted).launches
    assert launch.kernel == "matmul_kernel"
    assert {name: (metric.value, metric.unit) for name, metric in launch.metrics.items()} == {
        "gpu__time_duration.sum": (187_712, "ns"),
        "launch__func_cache_config": ("CachePreferShared", ""),
    }
    assert launch.instructions is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None, [1]])
def test_what_is_no_number_is_left_out(read, value):
    launch = recorded("matmul_sections")
    launch["metrics"]["gpu__time_duration.sum"] = [value, "ns", 0]
    (found,) = read([launch]).launches
    assert found.metrics == {}


def test_rules_are_read_with_their_estimates_and_without_links(read):
    (launch,) = read([recorded("matmul_sections")]).launches
    assert {(rule.name, rule.section, rule.type, rule.speedup_type) for rule in launch.rules} == {
        ("SOLBottleneck", "SpeedOfLight", "INF", None),
        ("IssueSlotUtilization", "SchedulerStats", "OPT", "local"),
        ("HighPipeUtilization", "ComputeWorkloadAnalysis", "OPT", None),
        ("LaunchConfiguration", "LaunchStats", "OPT", "global"),
        ("TheoreticalOccupancy", "Occupancy", "OPT", "global"),
    }
    rules = {rule.name: rule for rule in launch.rules}
    assert rules["LaunchConfiguration"].speedup_pct == 25
    assert rules["LaunchConfiguration"].title == "Tail Effect"
    assert rules["SOLBottleneck"].speedup_pct is None
    assert rules["SOLBottleneck"].message.endswith(
        "Start by analyzing workloads in the Compute Workload Analysis section."
    )
    assert "See the Hardware Model description" in rules["LaunchConfiguration"].message
    assert not any("@" in rule.message for rule in launch.rules)


def test_links_into_the_source_keep_their_text(reader):
    text = "see @source:candidate.py:13:candidate.py, line 14@ and @sass:0x20:FMUL@"
    assert reader._without_links(text) == "see candidate.py, line 14 and FMUL"


def test_instructions_stand_in_order_with_what_was_counted_at_each(read):
    (launch,) = read([with_instructions()]).launches
    table = launch.instructions
    assert table is not None
    assert table.offset == [0, 0x2D0, 0x870, 0x10E0]
    assert table.sass[0] == "LDC R1, c[0x0][0x28]"
    assert table.sass[3] == "@P1 EXIT"
    (silent,) = read([with_instructions()], texts=False).launches
    assert silent.instructions == table.model_copy(update={"sass": [""] * 4})
    assert launch.files == [CANDIDATE, STANDARD]
    assert (table.file, table.line) == ([0, 1, 0, 0], [9, 170, 14, 16])
    assert table.counts == {
        "inst_executed": [65536] * 4,
        "smsp__pcsamp_sample_count": [2, 0, 7, 0],
        "smsp__pcsamp_warps_issue_stalled_wait": [1, 0, 0, 0],
    }


def test_accesses_to_memory_are_among_the_counts(read):
    names = ("memory_l2_theoretical_sectors_global", "memory_l2_theoretical_sectors_global_ideal")
    shared = ("memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal")
    tables = {name: [(START + 0x2D0, 1_048_576)] for name in (*names, *shared)}
    (launch,) = read([with_instructions(**tables)]).launches
    assert launch.instructions is not None
    for name in tables:
        assert launch.instructions.counts[name] == [0, 1_048_576, 0, 0]


@pytest.mark.parametrize(
    ("told", "first"),
    [
        ([START - 0x40, START - (1 << 40), START + 0x100], 0x40),
        ([START], 0),
        # A number of functions, or an address far off, is no start of this one.
        ([1, START - (1 << 40)], 0),
        ([], 0),
    ],
)
def test_offsets_are_from_the_start_that_the_report_tells(read, told, first):
    (launch,) = read([with_instructions(launch__function_pcs=list(enumerate(told)))]).launches
    assert launch.instructions is not None
    assert launch.instructions.offset[:2] == [first, first + 0x2D0]


def test_instructions_without_line_information_have_no_file(read):
    launch = with_instructions()
    launch["code"][str(START)] = ("LDC R1, c[0x0][0x28]", None, None)
    launch["code"][str(START + 0x2D0)] = ("FMNMX", "", 0)
    (found,) = read([launch]).launches
    assert found.instructions is not None
    assert (found.instructions.file, found.instructions.line) == ([-1, -1, 0, 0], [0, 0, 14, 16])
    assert found.files == [CANDIDATE]


def test_launches_of_all_ranges_are_read_up_to_the_limit(read):
    first, second = recorded("matmul_two_passes"), recorded("softmax_two_passes")
    report = read([first, second], [second, first], limit=3)
    assert [launch.kernel for launch in report.launches] == ["matmul_kernel", "softmax_kernel", "softmax_kernel"]
    assert report.left_out == 1
    assert read([first]).left_out == 0
    assert read().launches == []


def test_names_that_no_text_can_hold_do_not_spoil_the_reply(read):
    launch = recorded("matmul_two_passes", kernel="matmul\udc80" + "x" * 5000)
    (found,) = read([launch]).launches
    assert found.kernel.startswith("matmul\\udc80x")
    assert len(found.kernel) <= 2000


def test_a_folder_without_the_profilers_module_is_refused_with_what_to_install(reader, tmp_path):
    with pytest.raises(reader.Unreadable) as refused:
        reader.read(str(tmp_path), str(tmp_path), [], 1, [], texts=False)
    assert f"can't be loaded from {tmp_path}" in str(refused.value)
    assert "install the whole package" in str(refused.value)


def test_a_module_whose_native_half_is_missing_is_refused_and_not_kept(reader, tmp_path):
    (tmp_path / "reader" / "_ncu_report.py").unlink()
    with pytest.raises(reader.Unreadable, match="No module named '_ncu_report'"):
        reader.load_reader(str(tmp_path / "reader"))
    (tmp_path / "reader" / "_ncu_report.py").write_text(NATIVE)
    importlib.invalidate_caches()
    assert reader.load_reader(str(tmp_path / "reader")).load_report


def test_a_file_that_is_no_report_is_refused(reader, tmp_path):
    (tmp_path / "broken").write_text("no report")
    with pytest.raises(reader.Unreadable, match="can't open its report"):
        reader.read(str(tmp_path / "broken"), str(tmp_path / "reader"), [], 1, [], texts=False)


def test_the_module_comes_from_the_folder_that_was_named_and_stays_off_the_path(reader, tmp_path):
    before = list(sys.path)
    module = reader.load_reader(str(tmp_path / "reader"))
    assert reader.load_reader(str(tmp_path / "reader")) is module
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "ncu_report.py").write_text("HERE = True\n")
    assert reader.load_reader(str(tmp_path / "other")).HERE
    assert sys.path == before


def test_a_request_reads_the_report_that_came_with_it_and_leaves_no_file(reader, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    side = importlib.import_module("tritonforge_worker.report_side").ReportSide()
    assert side.stage == "worker"
    request = {
        "reader_folder": str(tmp_path / "reader"),
        "wanted": ["gpu__time_duration.sum"],
        "launches_limit": 4,
        "texts": True,
    }
    sent = [bytearray(json.dumps([[recorded("matmul_two_passes")]]).encode())]
    reply, blobs = side.do_read_report(sent, **request)
    assert reply == {"launches": 0, "left_out": 0}
    assert [launch["kernel"] for launch in json.loads(blobs[0])] == ["matmul_kernel"]
    assert side.stage == "profile"
    assert [path.name for path in tmp_path.iterdir()] == ["reader"]


TABLE = {"offset": [0, 16], "sass": ["A", "B"], "file": [0, -1], "line": [1, 0], "counts": {"inst_executed": [1, 2]}}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"sass": ["A"]}, "differ in length"),
        ({"counts": {"inst_executed": [1]}}, "differ in length"),
        ({"offset": [16, 16]}, "not in the order"),
        ({"file": [0, 1]}, "not listed"),
        ({"file": [0, -2]}, "not listed"),
        ({"counts": {"inst_executed": [1, math.inf]}}, "finite"),
    ],
)
def test_a_table_that_is_none_is_not_believed(change, problem):
    launch = {"kernel": "k", "metrics": {}, "rules": [], "files": ["a.py"]}
    assert ReportedLaunch.model_validate({**launch, "instructions": TABLE}).instructions == InstructionTable(**TABLE)
    with pytest.raises(ValidationError, match=problem):
        ReportedLaunch.model_validate({**launch, "instructions": {**TABLE, **change}})


@pytest.mark.parametrize("value", [math.inf, math.nan, 1e300, None, {}])
def test_a_number_that_nothing_counts_to_is_not_believed(value):
    with pytest.raises(ValidationError):
        ReportedMetric(value=value, unit="")


def test_why_a_report_can_not_be_read_is_told_as_data(reader, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    side = importlib.import_module("tritonforge_worker.report_side").ReportSide()
    asked = {"reader_folder": str(tmp_path / "reader"), "wanted": [], "launches_limit": 1, "texts": False}
    reply, blobs = side.do_read_report([b"no report"], **asked)
    assert blobs == []
    assert "can't open its report" in reply["unreadable"]
    assert not (tmp_path / "report.ncu-rep").exists()
