"""One evaluation by KernelBench's `eval_kernel_against_ref`, to compare with: 3 correctness and 100 timing trials.

Run: python tests/benchmarks/peer.py FOLDER_OF_KERNELBENCH EXAMPLE_FOLDER CASE
(FOLDER_OF_KERNELBENCH holds the package `kernelbench`. Its clients of model providers are not needed and left out.)
"""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

PROVIDERS = {"dotenv": ["load_dotenv"], "openai": ["OpenAI"], "litellm": ["completion"]}
REFERENCE = """\
import torch
import torch.nn as nn
{task}
CASE = {{name: value for name, value in CASES[{case!r}].items() if name not in ("weight", "small")}}
class Model(nn.Module):
    def forward(self, *inputs):
        return reference(*inputs)
def get_inputs():
    return list(make_inputs(**CASE, device="cuda"))
def get_init_inputs():
    return []
"""
CANDIDATE = """\
{kernel}
import torch.nn as nn
class ModelNew(nn.Module):
    def forward(self, *inputs):
        return {entry}(*inputs)
"""


def kernelbench(folder: str, part: str) -> Any:
    """A module of KernelBench, without its clients of model providers."""
    for name, parts in PROVIDERS.items():
        module: Any = ModuleType(name)
        for attribute in parts:
            setattr(module, attribute, lambda *_args, **_more: None)  # pyright: ignore[reportUnknownLambdaType]
        sys.modules[name] = module
    sys.path.insert(0, folder)
    return importlib.import_module(f"kernelbench.{part}")


def main() -> None:
    folder, example, case = sys.argv[1:]
    import torch

    evaluate = kernelbench(folder, "eval")

    task = (Path(example) / "task.py").read_text()
    kernel = (Path(example) / "candidate.py").read_text()
    entry = Path(example).name
    result = evaluate.eval_kernel_against_ref(
        REFERENCE.format(task=task, case=case),
        CANDIDATE.format(kernel=kernel, entry=entry),
        num_correct_trials=3,
        num_perf_trials=100,
        measure_performance=True,
        device=torch.device("cuda:0"),
        backend="triton",
        precision=torch.float32 if entry == "sin" else torch.float16,
    )
    print(f"KernelBench: compiled {result.compiled}, correct {result.correctness}, runtime {result.runtime}")
    if not result.correctness:
        raise SystemExit(f"not correct: {result.metadata}")


if __name__ == "__main__":
    main()
