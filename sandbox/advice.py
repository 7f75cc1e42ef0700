"""What the common error messages of Triton and CUDA mean, and what usually mends them."""

from typing import NamedTuple


class Advice(NamedTuple):
    """Applies to messages that `pattern` (a regular expression) is found in."""

    pattern: str
    cause: str
    fix: str
    in_kernel: bool = False
    """Only for errors inside a Triton kernel: in ordinary Python the message means something else."""


ADVICE = (
    Advice(
        r"shared memory",
        "The tile and its pipeline stages need more shared memory than a block may have.",
        "Lower num_stages or a block size; shared memory grows with both.",
    ),
    Advice(
        r"out of resource: threads",
        "More warps than the kernel's register use allows.",
        "Lower num_warps.",
    ),
    Advice(
        r"illegal memory access|out of bounds",
        "A load or store outside a tensor's memory.",
        "Check offsets and masks; compute offsets of large tensors in 64 bits (pid.to(tl.int64)).",
    ),
    Advice(
        r"misaligned address",
        "An access wider than its address is aligned for.",
        "Check tl.multiple_of hints and pointer offsets; a wrong hint is a promise that is not kept.",
    ),
    Advice(
        r"device-side assert",
        "A tl.device_assert or an index check of torch failed on the GPU.",
        "Read the assertion's text in the output.",
    ),
    Advice(
        r"num_warps must be a power of 2",
        "num_warps is the number of warps of a program: 1, 2, 4, 8, 16 or 32.",
        "Launch with num_warps=4 or 8.",
    ),
    Advice(
        r"Shape element \d+ must be a power of 2|arange's range must be a power of 2|must be a power of 2",
        "tl.arange and block shapes need powers of two.",
        "Use triton.next_power_of_2 for the block and mask the tail.",
    ),
    Advice(
        r"is not defined",
        "A name used in the kernel is unknown at compile time.",
        "Define it, or make a module-level constant a tl.constexpr.",
        in_kernel=True,
    ),
    Advice(
        r"Cannot make_shape_compatible|incompatible dimensions|shape mismatch|Mismatched (shapes|dimensions)",
        "Two blocks of different shapes meet in one operation.",
        "Add or check [:, None] / [None, :], and the block sizes on both sides.",
    ),
    Advice(
        r"Expected dtype|Both operands must be same dtype|First input \(.*\) and second input",
        "Operands of different dtypes.",
        "Cast one with .to(...) first.",
    ),
    Advice(
        r"Cannot access global variable",
        "Triton kernels read only globals that are tl.constexpr.",
        "Annotate it as NAME: tl.constexpr = ..., or pass it as an argument.",
    ),
    Advice(
        r"Cannot call @triton.jit'd outside of the scope of a kernel",
        "A Triton function was called like a Python one.",
        "Launch it with kernel[grid](...).",
    ),
    Advice(
        r"missing \d+ required positional argument|got an unexpected keyword|missing a required argument",
        "The call does not match the kernel's or entry's parameters.",
        "Compare the launch's arguments with the signature.",
    ),
    Advice(
        r"Input shapes should have M >= \d+|should have (N|K) >= ",
        "tl.dot needs at least 16 in each dimension.",
        "Raise the block size or pad.",
    ),
    Advice(
        r"No module named",
        "An import that the worker's environment does not have.",
        "Install it there, or remove the import.",
    ),
    Advice(
        r"PassManager::run failed",
        "The compiler rejected the kernel after its front end accepted it.",
        "Look at the output for the first error; a layout or block size that the target can't have is the usual cause.",
    ),
)
"""The first that matches is given."""
