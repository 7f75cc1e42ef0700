"""An agent without ideas or network: it offers the files that it is given, one a round. Good for trying things out.

tritonforge-mcp optimize baseline.py --agent "python stub_agent.py task.py candidate.py other.py" --rounds 2
"""

import json
import sys
from pathlib import Path

request = json.load(sys.stdin)
task, *candidates = map(Path, sys.argv[1:])
if request["kind"] == "task":
    json.dump({"task": task.read_text()}, sys.stdout)
else:
    chosen = candidates[(request["round"] - 1) % len(candidates)]
    answer = {
        "kernel": chosen.read_text(),
        "strategy": f"what {chosen.name} does",
        "parent": request["parent"]["number"],
    }
    json.dump(answer, sys.stdout)
