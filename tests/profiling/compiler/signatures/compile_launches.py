# pyright: basic
# The worker's modules have no name that a type checker could resolve: they are loaded from their folder.
"""Makes every launch of some files under the capturing driver: `python compile_launches.py WORKER TARGET OUT FILE...`.

Each file has `LAUNCHES`, functions by name, each of which makes one launch. What a launch left goes to `OUT/NAME.json`:
the record and texts that a capture worker hands over, what the compiler's passes said, or why there is no launch.
"""

import importlib
import importlib.util
import json
import sys
from pathlib import Path


def main(worker, target, out, *files):
    _module("worker_main", worker)._load_package()
    capture, remap, remarks = (
        importlib.import_module(f"tritonforge_worker.{n}") for n in ("capture", "remap", "remarks")
    )
    from triton.errors import TritonError

    target = json.loads(target)
    recorder = capture.install(target)
    for file in files:
        for name, launch in _module(Path(file).stem, file).LAUNCHES.items():
            recorder.launches.clear()
            failure, blobs = None, []
            with remap.cuda_on_cpu(target["capability"], target["sm_count"], target["name"]), remarks.heard() as said:
                try:
                    launch()
                except (TritonError, RuntimeError) as error:
                    failure = f"{type(error).__name__}: {error}"
            launches = capture.report(recorder, blobs)["launches"]
            texts = [blob.decode(errors="replace") for blob in blobs]
            found = {"launches": launches, "texts": texts, "said": said, "failure": failure}
            with (Path(out) / f"{name}.json").open("x") as file_of_it:
                json.dump(found, file_of_it)


def _module(name, file):
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(*sys.argv[1:])
