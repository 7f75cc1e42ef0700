# pyright: basic
# The worker's modules have no name that a type checker could resolve: they are loaded from their folder.
"""Counting through CUPTI, step by step: against a stand-in, and its layouts against NVIDIA's headers."""

import ctypes
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import triton

from tests.sandbox.worker.fake_cupti import KNOWN, FakeCupti
from tritonforge.profiling.ncu.metrics import FIRST_LOOK
from tritonforge.sandbox.isolation import WORKER_FOLDER

LAYOUTS = """\
CUpti_Profiler_Initialize_Params 16 16
CUpti_Device_GetChipName_Params 32 32 deviceIndex:16 pChipName:24
CUpti_Profiler_Host_Initialize_Params 48 48 profilerType:16 pChipName:24 pCounterAvailabilityImage:32 pHostObject:40
CUpti_Profiler_Host_Deinitialize_Params 24 24 pHostObject:16
CUpti_Profiler_Host_ConfigAddMetrics_Params 40 40 pHostObject:16 ppMetricNames:24 numMetrics:32
CUpti_Profiler_Host_GetConfigImageSize_Params 32 32 pHostObject:16 configImageSize:24
CUpti_Profiler_Host_GetConfigImage_Params 40 40 pHostObject:16 configImageSize:24 pConfigImage:32
CUpti_Profiler_Host_GetNumOfPasses_Params 40 40 configImageSize:16 pConfigImage:24 numOfPasses:32
CUpti_Profiler_Host_EvaluateToGpuValues_Params 72 72 pHostObject:16 pCounterDataImage:24 counterDataImageSize:32 \
    rangeIndex:40 ppMetricNames:48 numMetrics:56 pMetricValues:64
CUpti_RangeProfiler_Enable_Params 32 32 ctx:16 pRangeProfilerObject:24
CUpti_RangeProfiler_Disable_Params 24 24 pRangeProfilerObject:16
CUpti_RangeProfiler_GetCounterDataSize_Params 64 64 pRangeProfilerObject:16 pMetricNames:24 numMetrics:32 \
    maxNumOfRanges:40 maxNumRangeTreeNodes:48 counterDataSize:56
CUpti_RangeProfiler_CounterDataImage_Initialize_Params 40 40 pRangeProfilerObject:16 counterDataSize:24 \
    pCounterData:32
CUpti_RangeProfiler_SetConfig_Params 96 90 pRangeProfilerObject:16 configSize:24 pConfig:32 counterDataImageSize:40 \
    pCounterDataImage:48 range:56 replayMode:60 maxRangesPerPass:64 numNestingLevels:72 minNestingLevel:74 \
    passIndex:80 targetNestingLevel:88
CUpti_RangeProfiler_Start_Params 24 24 pRangeProfilerObject:16
CUpti_RangeProfiler_Stop_Params 48 41 pRangeProfilerObject:16 passIndex:24 targetNestingLevel:32 \
    isAllPassSubmitted:40
CUpti_RangeProfiler_DecodeData_Params 32 32 pRangeProfilerObject:16 numOfRangeDropped:24
CUpti_RangeProfiler_GetCounterDataInfo_Params 40 40 pCounterDataImage:16 counterDataImageSize:24 numTotalRanges:32
"""
"""What g++ says of the headers of CUDA 13.0 update 1 and of 12.8 alike: sizeof, structSize (where the last field ends),
and where each field behind structSize and pPriv begins."""

MORE = [
    "smsp__inst_executed.sum", "sm__inst_executed_pipe_tensor_op_gmma.sum",
    "sm__inst_executed_pipe_tensor_op_hmma.sum", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "lts__t_sector_hit_rate.pct", "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
]  # fmt: skip
CUPTIS = {
    "triton's": Path(triton.__file__).parent / "backends/nvidia/lib/cupti/libcupti.so",
    "the toolkit's": Path("/usr/local/cuda/lib64/libcupti.so"),
}


@pytest.fixture(scope="module")
def structs(worker):
    return importlib.import_module("tritonforge_worker.cupti_structs")


@pytest.fixture(scope="module")
def profiler(worker):
    return importlib.import_module("tritonforge_worker.range_profiler")


@pytest.fixture
def cupti():
    return FakeCupti()


@pytest.fixture
def count(profiler, cupti):
    """Counts an entry that launches two kernels."""

    def counting(metrics=KNOWN, *, launch=lambda: [cupti.launch() for _ in range(2)], launches=2, told=10):
        def prepare():
            cupti.log.append("prepare")
            cupti.launch()
            return "inputs"

        def run(prepared):
            assert prepared == "inputs"
            launch()

        return profiler.count(
            cupti, metrics, prepare, run, device=0, context=0xC0, launches=launches, launches_told=told
        )

    return counting


def test_structures_lie_in_memory_as_nvidias_headers_have_them(structs):
    forms = [form for form in vars(structs).values() if isinstance(form, type) and form.__base__ is structs.Params]
    assert len(forms) == len(LAYOUTS.splitlines())
    found = []
    for form in forms:
        assert (form.structSize.offset, form.pPriv.offset) == (0, 8)
        fields = [f"{name}:{getattr(form, name).offset}" for name, _ in form._fields_[2:]]
        found.append(" ".join([form.__name__, str(ctypes.sizeof(form)), str(form.STRUCT_SIZE), *fields]))
    assert sorted(found) == sorted(" ".join(line.split()) for line in LAYOUTS.splitlines())


def test_each_launch_has_its_values_once_all_passes_are_there(cupti, count):
    cupti.passes = 2
    found = count()
    assert found.values == [{"a.sum": 0, "b.avg": 1, "c.pct": 2}, {"a.sum": 100, "b.avg": 101, "c.pct": 102}]
    assert (found.passes, found.launches, found.absent) == (2, 2, {})
    one_pass = ["prepare", "launch, not counted", "RangeProfilerStart", "launch", "launch", "RangeProfilerStop"]
    begin = cupti.log.index("prepare")
    assert cupti.log[begin : begin + 12] == one_pass * 2
    assert cupti.log[begin + 12] == "RangeProfilerDecodeData"


def test_launches_are_ranges_that_the_caller_runs_again(cupti, count, structs):
    count(launches=2)
    asked = cupti.asked["RangeProfilerSetConfig"]
    assert (asked.range, asked.replayMode) == (structs.AUTO_RANGE, structs.USER_REPLAY) == (1, 3)
    assert (asked.numNestingLevels, asked.minNestingLevel, asked.targetNestingLevel, asked.passIndex) == (1, 1, 1, 0)
    assert asked.maxRangesPerPass == cupti.asked["RangeProfilerGetCounterDataSize"].maxNumOfRanges == 3
    assert cupti.asked["RangeProfilerEnable"].ctx == 0xC0


def test_no_more_launches_are_told_than_were_asked_for(count):
    found = count(told=1)
    assert (len(found.values), found.launches) == (1, 2)


def test_everything_is_given_back(cupti, count):
    count()
    assert not cupti.alive
    assert cupti.log[-2:] == ["RangeProfilerDisable", "ProfilerHostDeinitialize"]


def test_a_process_initializes_the_library_once_with_what_lies_beside_it(profiler, cupti, count, monkeypatch):
    monkeypatch.setattr(profiler, "load_beside", lambda library: library.log.append("load"))
    count()
    count()
    assert cupti.log[:2] == ["load", "ProfilerInitialize"]
    assert [cupti.log.count(what) for what in ("load", "ProfilerInitialize")] == [1, 1]


@pytest.mark.parametrize(
    "step",
    [
        "DeviceGetChipName", "ProfilerHostInitialize", "ProfilerHostConfigAddMetrics",
        "ProfilerHostGetConfigImageSize", "ProfilerHostGetConfigImage", "ProfilerHostGetNumOfPasses",
        "RangeProfilerEnable", "RangeProfilerGetCounterDataSize", "RangeProfilerCounterDataImageInitialize",
        "RangeProfilerSetConfig", "RangeProfilerStart", "RangeProfilerStop", "RangeProfilerDecodeData",
        "RangeProfilerGetCounterDataInfo", "ProfilerHostEvaluateToGpuValues",
    ],
)  # fmt: skip
def test_where_a_step_fails_it_is_named_and_all_is_given_back(profiler, cupti, count, step):
    cupti.fails[step] = 999
    with pytest.raises(profiler.Unavailable, match=f"cupti{step}: CUPTI_ERROR_999") as raised:
        count()
    assert raised.value.code == "other"
    assert not cupti.alive
    behind = cupti.log[cupti.log.index(step) + 1 :]
    assert set(behind) <= {"RangeProfilerDisable", "ProfilerHostDeinitialize"}


def test_after_a_failed_initialization_nothing_more_is_called(profiler, cupti, count):
    cupti.fails["ProfilerInitialize"] = 15
    for _ in range(2):
        with pytest.raises(profiler.Unavailable, match="cuptiProfilerInitialize: CUPTI_ERROR_15"):
            count()
    assert set(cupti.log) == {"ProfilerInitialize"}


@pytest.mark.parametrize(
    ("result", "code", "words"),
    [
        (35, "counters_forbidden", "the driver restricts GPU performance counters to administrators"),
        (40, "counters_forbidden", "restricts"),
        (26, "counters_busy", "another profiler"),
        (39, "counters_busy", "another profiler"),
        (27, "unsupported_gpu", "can't count on this GPU"),
        (43, "unsupported_gpu", "can't count on this GPU"),
        (8, "other", "CUPTI can't count"),
    ],
)
def test_an_obstacle_is_told_by_its_sort(profiler, cupti, count, result, code, words):
    cupti.fails["RangeProfilerEnable"] = result
    with pytest.raises(profiler.Unavailable, match=words) as raised:
        count()
    assert raised.value.code == code
    assert f"cuptiRangeProfilerEnable: CUPTI_ERROR_{result}" in str(raised.value)


@pytest.mark.parametrize("result", [1, 46])
def test_a_chip_that_the_library_does_not_know_is_named(profiler, cupti, count, result):
    cupti.fails["ProfilerHostInitialize"] = result
    with pytest.raises(profiler.Unavailable, match="no metrics of GH100") as raised:
        count()
    assert raised.value.code == "unsupported_gpu"


def test_a_library_without_the_range_profiler_is_too_old(profiler, cupti, count, monkeypatch):
    monkeypatch.setattr(profiler, "FUNCTIONS", (*profiler.FUNCTIONS, "newFunction"))
    with pytest.raises(profiler.Unavailable, match=r"API version 23\) has no newFunction: .* CUDA 12\.6") as raised:
        count()
    assert raised.value.code == "cupti_too_old"
    assert not cupti.log


def test_metrics_that_the_chip_does_not_have_are_left_out_with_the_reason(cupti, count):
    found = count(["a.sum", "launch__odd", "c.pct", "no.such"])
    assert found.values[0] == {"a.sum": 0, "c.pct": 2}
    assert found.absent == dict.fromkeys(["launch__odd", "no.such"], "CUPTI knows no such metric of GH100")
    assert not cupti.alive


@pytest.mark.parametrize("metrics", [["no.such"], []])
def test_without_any_metric_nothing_runs(cupti, count, metrics):
    found = count(metrics)
    assert (found.passes, found.values, list(found.absent)) == (0, [], metrics)
    assert "RangeProfilerEnable" not in cupti.log
    assert not cupti.alive


@pytest.mark.parametrize("result", [8, 35])
def test_a_failure_is_not_taken_for_an_unknown_metric(profiler, cupti, count, result):
    cupti.fails["ProfilerHostConfigAddMetrics"] = result
    with pytest.raises(profiler.Unavailable):
        count()


@pytest.mark.parametrize("launched", [[2, 3], [3, 2], [1, 1], [7, 2], [0, 0]])
def test_other_launches_than_expected_have_no_values(cupti, count, launched):
    cupti.passes = 2
    turns = iter(launched)
    found = count(launch=lambda: [cupti.launch() for _ in range(next(turns))])
    assert found.values == []
    assert found.launches == max(launched)


def test_passes_without_end_are_not_waited_for(profiler, cupti, count):
    cupti.passes, cupti.passes_wanted = 2, 10
    with pytest.raises(profiler.Unavailable, match="more than the 2 passes"):
        count()
    assert len(cupti.ranges) == 2
    assert not cupti.alive


def test_an_entry_that_fails_is_told_as_such_and_the_profiler_is_stopped(cupti, count):
    def launch():
        raise ValueError("the entry's own")

    cupti.fails["RangeProfilerStop"] = cupti.fails["RangeProfilerDisable"] = 999
    with pytest.raises(ValueError, match="the entry's own"):
        count(launch=launch)
    assert cupti.log[-3:] == ["RangeProfilerStop", "RangeProfilerDisable", "ProfilerHostDeinitialize"]


SCRIPT = """
import contextlib, ctypes, importlib.util, json, sys
spec = importlib.util.spec_from_file_location("worker_main", sys.argv[1])
main = importlib.util.module_from_spec(spec)
spec.loader.exec_module(main)
main._load_package()
from tritonforge_worker import range_profiler

cupti = ctypes.CDLL(sys.argv[2])
range_profiler.load_beside(cupti)
with contextlib.ExitStack() as stack:
    library = range_profiler._Library(cupti)
    host, absent = range_profiler._schedule(library, b"GH100", json.loads(sys.argv[3]), stack)
    first, _ = range_profiler._schedule(library, b"GH100", json.loads(sys.argv[4]), stack)
    found = {"passes": [first.passes, host.passes], "known": host.names.all, "absent": absent}
    try:
        range_profiler._schedule(library, b"GH999", ["gpu__time_duration.sum"], stack)
    except range_profiler.Unavailable as error:
        found["chip"] = error.code, str(error)
loaded = {line.split()[-1] for line in open("/proc/self/maps") if "libnvperf_host" in line}
print(json.dumps({**found, "loaded": sorted(loaded)}))
"""


@pytest.mark.parametrize("whose", CUPTIS)
def test_the_library_itself_schedules_metrics_without_a_gpu(whose):
    path = CUPTIS[whose]
    if not (path.exists() and (path.parent / "libnvperf_host.so").exists()):
        pytest.skip(f"there is no CUPTI with its metrics at {path}")
    metrics = [*FIRST_LOOK, *MORE]
    arguments = [str(WORKER_FOLDER / "__main__.py"), str(path), json.dumps([*metrics, "no__such.sum"])]
    command = [sys.executable, "-c", SCRIPT, *arguments, json.dumps(FIRST_LOOK)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["passes"] == [1, 2]
    assert found["known"] == metrics
    assert found["absent"] == {"no__such.sum": "CUPTI knows no such metric of GH100"}
    assert found["chip"] == ["unsupported_gpu", "this CUPTI has no metrics of GH999"]
    assert [Path(each).resolve() for each in found["loaded"]] == [(path.parent / "libnvperf_host.so").resolve()]
