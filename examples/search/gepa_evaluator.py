"""GEPA's `optimize_anything` on a Triton kernel: its evaluator returns a score and what GEPA reflects on.

python gepa_evaluator.py baseline.py task.py MODEL    (a model's name as LiteLLM wants it, with its key set)
"""

import sys
from pathlib import Path
from typing import Any

from gepa.optimize_anything import EngineConfig, GEPAConfig, ReflectionConfig, optimize_anything

from tritonforge.server.evaluator_api import Evaluator

OBJECTIVE = "Make this Triton kernel faster on every case, with the same entry, signature and results."


def search(baseline: str, task: str, model: str, calls: int = 50) -> str:
    """The best kernel that was found."""
    config = GEPAConfig(
        # One kernel at a time has the GPU.
        engine=EngineConfig(max_metric_calls=calls, parallel=False),
        reflection=ReflectionConfig(reflection_lm=model),
    )
    with Evaluator(baseline, task) as evaluator:

        def evaluate(candidate: str) -> tuple[float, dict[str, Any]]:
            return evaluator(candidate).for_gepa()

        seed = Path(baseline).read_text()
        found = optimize_anything(seed_candidate=seed, evaluator=evaluate, objective=OBJECTIVE, config=config)
        return str(found.best_candidate)


if __name__ == "__main__":
    sys.stdout.write(search(*sys.argv[1:4]))
