"""Entry point: ``python -P .../worker/__main__.py serve|preload '{...}'``, a worker from nothing or the preloader.

The worker runs in the interpreter that the user's model runs in, where this project need not be installed,
so the package is loaded from its own folder under a private name.
"""

import importlib.util
import json
import sys
from pathlib import Path


def _load_package() -> None:
    folder = Path(__file__).resolve().parent
    spec = importlib.util.spec_from_file_location(
        "tritonforge_worker", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"can't load the worker package from {folder}")
    package = importlib.util.module_from_spec(spec)
    sys.modules["tritonforge_worker"] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":
    _load_package()
    program = importlib.import_module(f"tritonforge_worker.{sys.argv[1]}")
    sys.exit(program.main(json.loads(sys.argv[2])))
