"""What a cheat is, and what most of them are made of."""

from dataclasses import dataclass

from tests.faults.evaluations import TASK, replaced
from tritonforge.sandbox.outcome import Kind


@dataclass(frozen=True)
class Cheat:
    """A kernel file that is not what it says, and its honest twin: the same idea, done as one may."""

    row: int
    """Number of its kind of cheat; several are variations of one kind."""
    name: str
    hostile: str
    honest: str
    task: str
    kind: Kind
    """What becomes of the hostile one."""
    found: str
    """Where the results are wrong, the check that says so; otherwise words of the message."""
    defence: str
    """What stops it."""
    on: tuple[str, ...] = ("cpu", "gpu")
    honest_task: str | None = None
    """The twin's task, where what it does must be allowed."""
    off: tuple[str, ...] = ()
    """Switches (of `switches`) without which the cheat passes."""
    no_switch: str = ""
    """Why there is nothing to switch off."""
    sealed: bool = False
    """The defence is the sandbox: nothing is tried without one."""

    @property
    def id(self) -> str:
        return f"{self.row} {self.name}"


IMPORTS = """\
import torch
import triton
import triton.language as tl

"""
HEAD = f"""\
{IMPORTS}
@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x * 2, mask=mask)


def launch(x, out):
    double_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)


def decoy(x):
    launch(x[:1], torch.empty_like(x[:1]))


"""
HONEST = f"""\
{HEAD}
def double(x):
    out = torch.empty_like(x)
    launch(x, out)
    return out
"""
IN_PROCESS = "no switch: what is expected is in another process, whatever the parent does"
COMPARED = "no switch: without comparing every element there is no check at all"


def kernel(body: str) -> str:
    """A kernel file: `HEAD`, then this."""
    return HEAD + body


def saying(line: str, task: str = TASK) -> str:
    """A task that says this as well."""
    return replaced(task, "CASES = ", f"{line}\nCASES = ")
