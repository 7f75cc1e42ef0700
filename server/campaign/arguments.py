"""What the command `campaign` takes."""

import argparse

from ..optimize.arguments import parallel, rounds, seconds
from ..optimize.model import NONE, TUNE
from ..runs_arguments import Commands

EPILOG = """\
examples:
  tritonforge-mcp campaign TritonBench/data/TritonBench_G_v1 --agent tune --gpus all --out tb
  tritonforge-mcp campaign TritonBench/data/TritonBench_G_v1 --agent tune --out tb --resume
  tritonforge-mcp campaign kernels --agent claude --subset 20 --seed 1 --no-profile --out without-profile
  tritonforge-mcp campaign --compare tb without-profile
"""


def add_commands(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add `campaign` to the command line."""
    campaign = commands.add_parser(
        "campaign",
        parents=[shared],
        help="optimize many kernels, one after the other on each GPU, and report",
        description="Make tasks of a folder's artefacts (TritonBench-G files, KernelBench problems, GPU MODE folders, "
        "test files), let an agent optimize each, and report. What is done is kept: --resume goes on where a sitting "
        "ended. The exit code is 0 where every kernel is through, 1 where some are left, 2 for misuse.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    campaign.add_argument("folder", metavar="FOLDER", nargs="?", help="folder of artefacts")
    campaign.add_argument(
        "--agent",
        metavar="AGENT",
        default=TUNE,
        help=f"{TUNE} (default): search over what each kernel exposes, no model needed; claude, codex or gemini; a "
        f"command line, called once a round; {NONE}: only measure the baselines",
    )
    campaign.add_argument("--agent-args", metavar="WORDS", default="", help="more arguments of the agent's CLI")
    campaign.add_argument("--out", metavar="DIR", help="the campaign's folder (default: campaign-FOLDER)")
    campaign.add_argument("--resume", action="store_true", help="go on with the campaign that is there")
    campaign.add_argument(
        "--again", metavar="OUTCOME", action="append", default=[],
        help="with --resume: work again on kernels that ended so, such as failed or baseline_failed; may be repeated",
    )  # fmt: skip
    campaign.add_argument("--subset", metavar="N", type=rounds, help="so many artefacts, chosen at random by --seed")
    campaign.add_argument("--seed", metavar="S", type=int, default=0, help="decides which (default: 0)")
    campaign.add_argument("--only", metavar="NAME", nargs="+", default=[], help="only these artefacts")
    campaign.add_argument(
        "--gpus", metavar="all|LIST",
        help="GPUs to work on, as CUDA_VISIBLE_DEVICES lists them, or all (default: the first, if there is one)",
    )  # fmt: skip
    campaign.add_argument(
        "--at-once", metavar="N", type=parallel, default=1,
        help="kernels in work on each GPU; measurements have it to themselves all the same (default: 1)",
    )  # fmt: skip
    campaign.add_argument("--rounds", metavar="N", type=rounds, default=8, help="candidates of a kernel (default: 8)")
    campaign.add_argument(
        "--search-s", metavar="S", type=seconds, default=30.0, help="seconds for one search of tune (default: 30)"
    )
    campaign.add_argument(
        "--wall-s", metavar="S", type=seconds, default=1800.0, help="seconds for one kernel (default: 1800)"
    )
    campaign.add_argument(
        "--performance", metavar="DIR",
        help="TritonBench performance files (default: looked for in its repository)",
    )  # fmt: skip
    campaign.add_argument("--no-profile", action="store_true", help="ablation: the agent gets no profiler")
    campaign.add_argument("--no-diagnosis", action="store_true", help="ablation: the agent gets no findings or hints")
    campaign.add_argument("--one-shot", action="store_true", help="ablation: one candidate, no second one")
    campaign.add_argument("--no-unseen", action="store_true", help="do not try winners on other shapes")
    campaign.add_argument("--tasks-only", action="store_true", help="only make the tasks; a GPU is used, not needed")
    campaign.add_argument("--report-only", action="store_true", help="write the report of what is in --out, and end")
    campaign.add_argument("--compare", metavar="DIR", nargs="+", help="set campaigns side by side; no FOLDER")
    campaign.add_argument("--json", action="store_true", help="print the summary as JSON")
