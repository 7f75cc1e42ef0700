"""How long `compile_kernel` takes from warm workers, and what of it is Triton's own compile; needs no GPU.

    python tests/benchmarks/compile_time.py [--repeats 7]

Each call compiles anew: a worker is used once, and its cache dies with it. Before each, the pool has time to refill.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.bench import EXAMPLES, log_requests
from tritonforge.server.services import Services
from tritonforge.server.settings import Settings
from tritonforge.server.tools.compile_kernel import compile_kernel

CASES = {"sin": ["large"], "softmax": ["train"], "matmul": ["square"]}
REFILL_S = 4.0


async def main(repeats: int) -> None:
    """Print a table."""
    seconds = log_requests()
    print("| example | whole call, s | of it the entry with Triton's compile, s | beyond, s | with explain, s more |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        async with Services(Settings(state_dir=Path(folder))) as services:
            await services.environment()
            for name, cases in CASES.items():
                plain: list[tuple[float, float]] = []
                explained: list[float] = []
                for _ in range(repeats):
                    for explain in (False, True):
                        await anyio.sleep(REFILL_S)
                        seconds.clear()
                        started = time.perf_counter()
                        await compile_kernel(
                            services,
                            _ignore,
                            kernel=str(EXAMPLES / name / "candidate.py"),
                            task=str(EXAMPLES / name / "task.py"),
                            target="h100",
                            cases=cases,
                            explain=explain,
                        )
                        whole = time.perf_counter() - started
                        if explain:
                            explained.append(whole)
                        else:
                            plain.append((whole, sum(seconds["capture"])))
                        print(f"  {name}: {whole:.2f} s: {in_words(seconds)}", file=sys.stderr)
                beyond = [whole - capture for whole, capture in plain]
                more = [one - whole for one, (whole, _) in zip(explained, plain, strict=True)]
                columns = ([whole for whole, _ in plain], [capture for _, capture in plain], beyond, more)
                print(f"| {name} | {' | '.join(map(spread, columns))} |", flush=True)


def spread(values: list[float]) -> str:
    """Median [least, most]."""
    return f"{statistics.median(values):.2f} [{min(values):.2f}, {max(values):.2f}]"


def in_words(seconds: dict[str, list[float]]) -> str:
    """Each operation with its time."""
    return ", ".join(f"{name} {1e3 * sum(each):.0f} ms" for name, each in seconds.items())


async def _ignore(done: float, total: float, message: str) -> None:
    """Nobody watches the progress."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    anyio.run(main, parser.parse_args().repeats)
