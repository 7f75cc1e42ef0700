"""Small kernels with one fault each, on the line that ends in `# here`, and the place that has to be reported."""

from typing import Final, NamedTuple

ROW: Final = "    i = tl.program_id(0) * B + tl.arange(0, B)\n"
TILE: Final = "    r = tl.arange(0, B)\n    at = r[:, None] * B + r[None, :]\n"
LOOP: Final = TILE + "    acc = tl.zeros((B, B), tl.float32)\n    for k in range(n):\n"


class Planted(NamedTuple):
    """One kernel's body over `x`, `y`, `n` and `B`, and the place that has to be found on its marked line."""

    what: str
    body: str
    dtype: str = "float32"
    block: int = 1024


PLANTED: Final = {
    "strided_load": Planted("narrow-load", ROW + "    v = tl.load(x + i * 2)  # here\n    tl.store(y + i, v)\n"),
    "strided_store": Planted("narrow-store", ROW + "    v = tl.load(x + i)\n    tl.store(y + i * 3, v)  # here\n"),
    "half_strided_load": Planted(
        "narrow-load", ROW + "    v = tl.load(x + i * 5)  # here\n    tl.store(y + i, v)\n", "float16"
    ),
    "ragged_mask": Planted(
        "narrow-load",
        ROW + "    v = tl.load(x + i, mask=i < n)  # here\n    tl.store(y + i, v)\n",
    ),
    "odd_offset": Planted("narrow-load", ROW + "    v = tl.load(x + i + 1)  # here\n    tl.store(y + i, v)\n"),
    "odd_store": Planted("narrow-store", ROW + "    v = tl.load(x + i)\n    tl.store(y + i + 1, v)  # here\n"),
    "gather": Planted(
        "narrow-load",
        ROW + "    j = tl.load(x + i).to(tl.int32)\n    v = tl.load(x + j)  # here\n    tl.store(y + i, v)\n",
    ),
    "scatter": Planted("narrow-store", ROW + "    v = tl.load(x + i)\n    tl.store(y + v.to(tl.int32), v)  # here\n"),
    "reversed_load": Planted("narrow-load", ROW + "    v = tl.load(x + (B - 1 - i))  # here\n    tl.store(y + i, v)\n"),
    "loop_strided": Planted(
        "narrow-load",
        ROW
        + "    acc = tl.zeros((B,), tl.float32)\n    for k in range(n):\n"
        + "        acc += tl.load(x + i * 7 + k * B)  # here\n    tl.store(y + i, acc)\n",
    ),
    "helper_load": Planted("narrow-load", ROW + "    v = helper(x, i)\n    tl.store(y + i, v)\n"),
    "default_atomic": Planted("acq-rel-atomic", ROW + "    v = tl.load(x + i)\n    tl.atomic_add(y + i, v)  # here\n"),
    "scalar_atomic": Planted(
        "acq-rel-atomic", ROW + "    v = tl.sum(tl.load(x + i))\n    tl.atomic_add(y, v)  # here\n"
    ),
    "acquire_atomic": Planted(
        "acquire-atomic", ROW + "    v = tl.load(x + i)\n    tl.atomic_add(y + i, v, sem='acquire')  # here\n"
    ),
    "release_atomic": Planted(
        "release-atomic", ROW + "    v = tl.load(x + i)\n    tl.atomic_add(y + i, v, sem='release')  # here\n"
    ),
    "sum_in_loop": Planted(
        "reduction-in-loop",
        ROW + "    s = 0.0\n    for k in range(n):\n        v = tl.load(x + i + k * B)\n"
        "        s += tl.sum(v)  # here\n    tl.store(y, s)\n",
    ),
    "max_in_loop": Planted(
        "barrier-in-loop",
        ROW + "    s = 0.0\n    for k in range(n):\n        v = tl.load(x + i + k * B)\n"
        "        s += tl.max(v)  # here\n    tl.store(y, s)\n",
    ),
    "barrier": Planted(
        "barrier-in-loop",
        ROW + "    for k in range(n):\n        v = tl.load(x + i)\n        tl.debug_barrier()  # here\n"
        "        tl.store(y + i + k * B, v)\n",
    ),
    "transposed_in_loop": Planted(
        "layout-conversion-in-loop",
        LOOP + "        v = tl.load(x + at + k * B * B)\n        w = tl.trans(v)\n"
        "        tl.store(y + at + k * B * B, w)  # here\n",
        block=32,
    ),
    "wait_beside_dot": Planted(
        "load-waits-beside-dot",
        TILE + "    acc = tl.zeros((B, B), tl.float32)\n    k = 0\n    while k < n:\n"
        "        a = tl.load(x + at + k * B * B)  # here\n        acc = tl.dot(a, a, acc)\n        k += 1\n"
        "    tl.store(y + at, acc)\n",
        "float16",
        32,
    ),
    "narrow_beside_dot": Planted(
        "load-waits-beside-dot",
        LOOP + "        a = tl.load(x + at * 2 + k)  # here\n        acc = tl.dot(a, a, acc)\n"
        "    tl.store(y + at, acc)\n",
        "float16",
        32,
    ),
}
CLEAN: Final = f"@triton.jit\ndef clean(x, y, B: tl.constexpr):\n{ROW}    tl.store(y + i, tl.load(x + i))\n\n\n"
HELPER: Final = "@triton.jit\ndef helper(p, i):\n    return tl.load(p + i * 2)  # in helper\n\n\n"


def source() -> str:
    """A file with all of them, each launched once."""
    text = "import torch\nimport triton\nimport triton.language as tl\n\n\n" + HELPER + CLEAN
    for name, planted in PLANTED.items():
        text += f"@triton.jit\ndef {name}(x, y, n, B: tl.constexpr):\n{planted.body}\n\n"
    text += "def main():\n    clean[(4,)](*torch.zeros(2, 4096, device='cuda'), B=1024)\n"
    for name, planted in PLANTED.items():
        text += f"    x = torch.zeros(65536, dtype=torch.{planted.dtype}, device='cuda')\n"
        text += f"    {name}[(4,)](x, torch.zeros_like(x), 7, B={planted.block})\n"
    return text + "\n\nif __name__ == '__main__':\n    main()\n"


def marked_line(text: str, name: str) -> int:
    """The line of a kernel's mark in the file."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"def {name}("))
    end = next(number for number in range(start, len(lines)) if not lines[number])
    marks = [number for number in range(start, end) if "# here" in lines[number]]
    return (marks or [next(number for number, line in enumerate(lines) if "# in helper" in line)])[0] + 1
