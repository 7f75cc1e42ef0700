"""OpenEvolve's evaluation file: its `evaluate(program_path)` scores a Triton kernel against a baseline.

export BASELINE=baseline.py TASK=task.py
openevolve-run baseline.py openevolve_evaluator.py --config config.yaml --iterations 50

Set `evaluator: {cascade_evaluation: false, parallel_evaluations: 1, timeout: 600}` in config.yaml: one kernel at a
time has the GPU. A kernel that fails scores 0, and what was wrong is an artifact, which goes into the next prompt.
"""

import atexit
import os
from functools import cache
from pathlib import Path

from openevolve.evaluation_result import EvaluationResult

from tritonforge.server.evaluator_api import Evaluator


@cache
def _evaluator() -> Evaluator:
    """One a process; its workers stay warm until that ends."""
    evaluator = Evaluator(os.environ["BASELINE"], os.environ["TASK"])
    atexit.register(evaluator.close)
    return evaluator


def evaluate(program_path: str) -> EvaluationResult:
    metrics, artifacts = _evaluator()(Path(program_path).read_text()).for_openevolve()
    return EvaluationResult(metrics=metrics, artifacts=artifacts)
