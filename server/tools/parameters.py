"""Parameters that several tools take, described once. Bounds and defaults stand in the text too: some clients drop
them from the schema."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

from pydantic import Field

Progress = Callable[[float, float, str], Awaitable[None]]
"""Tell the caller how far a call is: done, total, what is being done."""

Kernel = Annotated[
    str,
    Field(
        description="Kernel file: a path, or Python source (text with a newline is source; 1 MB at most). "
        "It holds @triton.jit functions and the host function that the task's ENTRY names."
    ),
]
TaskFile = Annotated[
    str,
    Field(
        description="Task file: a path, or Python source. It defines ENTRY, CASES and make_inputs(..., device); "
        "optional: reference, TOLERANCE, work, IN_PLACE. The prompt generate_tests, or "
        "get_playbook(role='generate_tests'), explains it."
    ),
]
OptionalTask = Annotated[
    str | None,
    Field(
        description="Task file: a path, or Python source, with ENTRY, CASES and make_inputs(..., device); see the "
        "prompt generate_tests, or get_playbook(role='generate_tests'). Default: none, the kernel file is run as it "
        "stands and must call its kernels itself."
    ),
]
OptionalBaseline = Annotated[
    str | None,
    Field(description="Kernel file to compare with: a path or Python source, with the same entry. Default: none."),
]
Compared = Annotated[
    str | None,
    Field(
        description="Another kernel file, such as the baseline: a path or Python source. It is compiled too, and "
        "changes[] tells what differs. Default: none."
    ),
]
Cases = Annotated[
    list[str] | None,
    Field(description="Names of the task's cases to use, such as ['train']. Default: all that apply."),
]
TargetName = Annotated[
    str | None,
    Field(
        description="GPU to compile for: h100 (= h100-sxm), h100-pcie, h100-nvl, h200, gh200, h20, a100-sxm, ..., of "
        "AMD's mi300x or mi325x, or an architecture such as sm_90 or gfx942. Default: this machine's GPU, else h100."
    ),
]

Against = Annotated[
    list[Literal["eager", "torch.compile"]] | None,
    Field(
        description="Time the task's reference beside the kernel: 'eager' as it is, 'torch.compile' compiled (takes "
        "5 to 60 s more). Default: none.",
        max_length=2,
    ),
]
Cache = Annotated[
    Literal["cold", "warm"],
    Field(
        description="'cold' empties L2 before each timed call; 'warm' does not, for kernels whose inputs were just "
        "written. Default: cold."
    ),
]

ProfiledCases = Annotated[
    list[str] | None,
    Field(description="Names of the task's cases to profile, such as ['train']. Default: the one of largest weight."),
]
ProfileLevel = Annotated[
    Literal["quick", "standard", "full"],
    Field(
        description="How much is counted: 'quick' (time, DRAM, occupancy, tensor cores), 'standard' (and hottest "
        "lines, stalls, operations, coalescing, rules), 'full' (everything, for the report file). Default: standard. "
        "metrics, where given, count instead; the result's level is then 'custom'."
    ),
]
MetricNames = Annotated[
    list[str] | None,
    Field(
        description="Instead of a level: full names of Nsight Compute's metrics, such as "
        "['smsp__inst_executed.sum']; 60 at most. Default: none."
    ),
]
KernelNames = Annotated[
    list[str] | None,
    Field(description="Only launches of these functions, such as ['softmax_kernel']. Default: all launches."),
]
Launches = Annotated[
    int,
    Field(description="How many launches of a call are profiled, from the first: 1 to 50. Default: 10.", ge=1, le=50),
]
ProfileCompared = Annotated[
    str | None,
    Field(
        description="Another kernel file, such as the baseline: a path or Python source. It is profiled too, and "
        "changes[] tells what differs. Default: none."
    ),
]
Detail = Annotated[
    bool, Field(description="Also return everything that was read of each launch shown. Default: false.")
]

DiagnosedCase = Annotated[
    str | None,
    Field(description="Name of the task's case to diagnose, such as 'train'. Default: the one of largest weight."),
]
Depth = Annotated[
    Literal["auto", "source", "profile", "code", "compiler"],
    Field(
        description="How deep to look: 'auto' (a level only while the ones before leave the question open), or up to "
        "and with 'source', 'profile' (needs a GPU), 'code' or 'compiler'. Default: auto."
    ),
]
VerifyWith = Annotated[
    str | None,
    Field(
        description="Another kernel file, such as the edited one: a path or Python source. It is compiled too, and "
        "verification tells whether its code changed as predicted. Default: none."
    ),
]
Probes = Annotated[
    list[Literal["no_loads", "idle_loads", "no_stores", "no_math", "half_trips", "neither"]] | None,
    Field(
        description="Also time variants of the kernel that leave out one kind of work, about 1 s each; needs a GPU "
        "and a task. 'idle_loads' loads nothing but keeps pipelines, 'no_loads' has no load instructions, 'no_math' no "
        "products and special functions, 'half_trips' half of the iterations of loops that load, 'neither' no loads "
        "and no mathematics. []: those that tell most. Default: none.",
        max_length=6,
    ),
]

HiddenCases = Annotated[
    str | None,
    Field(
        description="A Python file, or source, that defines HIDDEN_CASES, written like CASES: judged before a "
        "candidate is accepted, kept by the server, shown to nobody. Default: none, the task's own HIDDEN_CASES, "
        "else neighbours of the visible shapes."
    ),
]
Attempts = Annotated[int, Field(ge=1, le=1000, description="Candidates that may be evaluated, 1 to 1000. Default: 8.")]
WallTime = Annotated[
    float | None,
    Field(
        gt=0,
        allow_inf_nan=False,
        description="Seconds, above 0, since its start after which the run ends. Default: none.",
    ),
]
TargetPct = Annotated[
    float,
    Field(
        gt=0,
        le=100,
        allow_inf_nan=False,
        description="Share of the speed of light, in percent, above 0 and up to 100, at which the run has reached its "
        "target. Default: 95.",
    ),
]
TargetRatio = Annotated[
    float | None,
    Field(
        gt=1,
        allow_inf_nan=False,
        description="Baseline time over the best attempt's, above 1, at which the run has reached its target. "
        "Default: none.",
    ),
]
FailedCount = Annotated[
    bool, Field(description="Whether candidates that fail cost an attempt; duplicates never do. Default: true.")
]
CaseRegression = Annotated[
    float,
    Field(
        ge=0,
        le=100,
        allow_inf_nan=False,
        description="Percent of time that one case may lose against the best attempt so far, 0 to 100, beyond its "
        "interval. Default: 1.",
    ),
]
WAIT_LIMIT_S = 600.0
WaitS = Annotated[
    float,
    Field(
        ge=0,
        le=WAIT_LIMIT_S,
        allow_inf_nan=False,
        description="Seconds to wait for the answer, 0 to 600; after that the kind is 'running' and next_step says how "
        "to go on. Default: 45.",
    ),
]
PollS = Annotated[
    float,
    Field(
        ge=0,
        le=WAIT_LIMIT_S,
        allow_inf_nan=False,
        description="Seconds to wait until the attempt (without attempt: whatever is being evaluated) is over, 0 to "
        "600. Default: 0.",
    ),
]
RunId = Annotated[str, Field(description="Id of the run, as start_optimization and get_run tell it.")]
OptionalRunId = Annotated[
    str | None, Field(description="Id of the run, as start_optimization tells it. Default: none, the runs are listed.")
]
Strategy = Annotated[
    str,
    Field(
        description="What was changed and why it should help, in one or two sentences; the first 500 characters are "
        "kept, and become the run's memory."
    ),
]
Parent = Annotated[
    int | None,
    Field(
        ge=0,
        lt=2**31,
        description="Number of the attempt that the candidate was made from, from 0 on, which is the baseline. "
        "Default: the best attempt so far.",
    ),
]
AttemptNumber = Annotated[
    int | None,
    Field(ge=0, lt=2**31, description="Number of an attempt, for its full answer; 0 is the baseline. Default: none."),
]
CancelAttempt = Annotated[bool, Field(description="End the evaluation of that attempt. Default: false.")]
EndRun = Annotated[
    bool, Field(description="End the run: it takes no more candidates, and its lessons are kept. Default: false.")
]
RunDetail = Annotated[
    bool,
    Field(
        description="Tell all: up to 100 attempts; of one attempt also its source text, all cases and findings. "
        "Default: false."
    ),
]
FindingId = Annotated[
    str | None,
    Field(
        description="Only lessons about this finding of diagnose_kernel's catalogue, such as 'V1'. Default: all.",
    ),
]
LessonKernel = Annotated[
    str | None,
    Field(description="Only lessons seen with this kernel: its title, or a word of it. Default: all."),
]
LessonLimit = Annotated[int, Field(ge=1, le=50, description="Lessons at most, 1 to 50. Default: 10.")]
