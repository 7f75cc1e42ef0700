# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false
# (Triton's own types don't pass the strict mode.)
"""Writes the recordings of this folder anew: `python tests/recordings/compiler/record.py`.

Compiles the examples and `kernels.py` with the installed Triton, on a machine with or without a GPU, and leaves
NAME.ttgir, NAME.ptx and NAME.ptxas (the log of `ptxas -v`), or for AMD's GPUs NAME.amdgcn. Debug sections and the list
of source positions at the end of a TTGIR file are dropped; `.file` keeps only the file's name.
"""

import importlib.util
import re
import subprocess
import tempfile
from pathlib import Path

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[2] / "examples"
HALVES = {"a_ptr": "*fp16", "b_ptr": "*fp16", "c_ptr": "*fp16"}
MATMUL = {**HALVES, **dict.fromkeys(("M", "N", "K", "stride_am", "stride_bk", "stride_cm"), "i32")}
SOFTMAX = {"x_ptr": "*fp16", "out_ptr": "*fp16", "row_stride": "i32", "cols": "i32"}
ROW_SOFTMAX = {"source_ptr": "*fp16", "target_ptr": "*fp16", "stride": "i32", "width": "i32"}
FLOATS = {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32"}
SINGLES = {"a_ptr": "*fp32", "b_ptr": "*fp32", "c_ptr": "*fp32"}
ATTENTION = {
    **dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "out_ptr"), "*fp16"),
    **dict.fromkeys(("stride", "length"), "i32"),
}


def main():
    sin, softmax, matmul = "sin_kernel", "softmax_kernel", "matmul_kernel"
    record("sin_baseline", "sin/baseline", sin, FLOATS, {"BLOCK": 4})
    record("sin_candidate", "sin/candidate", sin, FLOATS, {"BLOCK": 1024})
    record("softmax_baseline", "softmax/baseline", softmax, SOFTMAX, {"BLOCK": 128}, num_warps=1)
    record("softmax_candidate", "softmax/candidate", softmax, SOFTMAX, {"BLOCK": 4096}, num_warps=8)
    record("softmax_renamed", None, "row_softmax", ROW_SOFTMAX, {"BLOCK": 4096}, num_warps=8, keep="ptx")
    record("softmax_shorter", "softmax/candidate", softmax, SOFTMAX, {"BLOCK": 2048}, num_warps=8, keep="ptx")
    unaligned = {"aligned": ("x_ptr", "out_ptr"), "num_warps": 2}
    record("softmax_unaligned", "softmax/candidate", softmax, SOFTMAX, {"BLOCK": 1024}, **unaligned)

    small = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
    record("matmul_baseline", "matmul/baseline", matmul, MATMUL, small, num_warps=2, num_stages=1)
    for name, (m, n, k), options in (
        ("matmul_candidate", (128, 256, 64), {"num_warps": 8}),
        ("matmul_short", (32, 64, 64), {}),
        ("matmul_unaligned", (64, 64, 32), {"aligned": tuple(HALVES)}),
        ("matmul_spilling", (256, 256, 32), {"keep": "ptxas"}),
    ):
        block = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}
        record(name, "matmul/candidate", matmul, MATMUL, block, **options)

    sizes = dict.fromkeys(("M", "N", "K"), "i32")
    record("atomics", None, "atomic_kernel", FLOATS, {"BLOCK": 1024})
    record("tma", None, "tma_kernel", {**HALVES, **sizes}, {"BLOCK": 64})
    record("tma_sm100", None, "tma_kernel", {**HALVES, **sizes}, {"BLOCK": 64}, capability=100)
    tf32 = {"BLOCK": 64, "PRECISION": "tf32"}
    record("while_loop", None, "while_kernel", {**HALVES, "K": "i32"}, tf32)
    ieee = {"BLOCK": 64, "PRECISION": "ieee"}
    record("ieee", None, "while_kernel", {**SINGLES, "K": "i32"}, ieee, keep="ttgir ptxas")
    record("batched", None, "batched_kernel", HALVES, {"BLOCK": 64}, keep="ttgir")
    record("attention", None, "attention_kernel", ATTENTION, {"BLOCK": 64, "DIM": 64})
    two_kernels()

    amd = {"capability": "gfx942", "keep": "ttgir amdgcn"}
    block = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8}
    record("matmul_gfx942", "matmul/candidate", matmul, MATMUL, block, **amd)
    amd["keep"] = "amdgcn"
    record("softmax_gfx942", "softmax/candidate", softmax, SOFTMAX, {"BLOCK": 1024}, **amd)
    record("softmax_renamed_gfx942", None, "row_softmax", ROW_SOFTMAX, {"BLOCK": 1024}, **amd)
    record("atomics_gfx942", None, "atomic_kernel", FLOATS, {"BLOCK": 1024}, **amd)
    record("scalars_gfx942", None, "scalar_kernel", FLOATS, {"COUNT": 60}, num_warps=1, **amd)


def record(
    name, example, function, signature, constants, *, aligned=None, capability=90, keep="ttgir ptx ptxas", **options
):
    """`aligned`: the arguments that are divisible by 16, by default all; `keep`: the files wanted; `capability`: or an
    architecture of AMD's, for which tensors are taken to be below 2 GiB."""
    source = source_of(example, function, signature, constants, aligned, capability)
    if capability == "gfx942":
        texts = amd_texts(triton.compile(source, target=GPUTarget("hip", capability, 64), options=options).asm)
    else:
        texts = nvidia_texts(
            triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options).asm, capability
        )
    for suffix in keep.split():
        (HERE / f"{name}.{suffix}").write_text(texts[suffix])


def source_of(example, function, signature, constants, aligned, capability):
    """What Triton compiles."""
    path = EXAMPLES / f"{example}.py" if example else HERE / "kernels.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel = getattr(module, function)
    return ASTSource(
        fn=kernel,
        signature={arg: "constexpr" if arg in constants else signature[arg] for arg in kernel.arg_names},
        constexprs=constants,
        attrs={
            (kernel.arg_names.index(arg),): [["tt.divisibility", 16]]
            + [["tt.pointer_range", 32]] * (capability == "gfx942" and signature[arg][0] == "*")
            for arg in (signature if aligned is None else aligned)
        },
    )


def nvidia_texts(asm, capability):
    ptx = re.sub(r"^\s*\.section\s+\.debug_\w+\s*\{[^}]*\}\n?", "", asm["ptx"], flags=re.MULTILINE)
    ptx = re.sub(r'(\.file\s+\d+ ").*/', r"\1", ptx)
    return {"ptx": ptx, "ttgir": without_locations(asm["ttgir"]), "ptxas": ptxas_log(asm["ptx"], capability)}


def amd_texts(asm):
    # Behind the debug sections come more sections, or the metadata.
    debug = r"^\s*\.section\s+\.debug_.*?(?=^\s*\.(?:section|amdgpu_metadata))"
    amdgcn = re.sub(debug, "", asm["amdgcn"], flags=re.MULTILINE | re.DOTALL)
    return {"amdgcn": re.sub(r'(\.file\s+\d+ ").*/', r"\1", amdgcn), "ttgir": without_locations(asm["ttgir"])}


def without_locations(ttgir):
    return re.sub(r"^#loc\d* = .*\n", "", ttgir, flags=re.MULTILINE)


def two_kernels():
    """One log for two kernels with a device function, as `ptxas` writes it for a file with several."""
    header, *_ = (HERE / "atomics.ptx").read_text().partition("\n\n\t//")
    bodies = [(HERE / f"{name}.ptx").read_text().partition("\n\n\t//")[2] for name in ("atomics", "softmax_candidate")]
    (first, second) = (re.sub(r"^\s*\.(?:loc|file)\b.*$", "", body, flags=re.MULTILINE) for body in bodies)
    second = second.replace(".extern .shared .align 16 .b8 global_smem[];", "")
    (HERE / "two_kernels.ptxas").write_text(ptxas_log(f"{header}\n\n//{first}\n//{second}", 90))


def ptxas_log(ptx, capability):
    ptxas = knobs.nvidia.ptxas.path if capability < 100 else knobs.nvidia.ptxas_blackwell.path
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx)
        arch = f"--gpu-name=sm_{capability}a"
        command = [ptxas, "-v", arch, str(source), "-o", str(Path(folder, "kernel.cubin"))]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr + done.stdout)
    return re.sub(r".*Compile time = .*\n", "", done.stderr + done.stdout)


if __name__ == "__main__":
    main()
