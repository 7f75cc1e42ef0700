"""KernelBench problems: `Model`, `get_inputs` and `get_init_inputs`; a candidate has `ModelNew`."""

import ast
from pathlib import Path
from typing import Final

from .facts import names_in
from .model import Adapted, Form
from .recorded import quoted

ENTRY: Final = "run_model"
NEEDED: Final = frozenset({"Model", "get_inputs", "get_init_inputs"})

WRAPPER: Final = '''

# A candidate keeps this function and has a ModelNew of its own, with weights of the same names and shapes.
def run_model(inputs, weights, init):
    """Call ModelNew with the given weights; it is made once for the same arguments."""
    key = repr((init, [(name, tuple(value.shape), value.dtype, value.device) for name, value in weights.items()]))
    if key not in _MODELS:
        with torch.device("meta"):
            _MODELS[key] = ModelNew(*init).eval()
    return torch.func.functional_call(_MODELS[key], weights, tuple(inputs))


_MODELS = {}
'''

TASK: Final = '''
SEED = 42


def _problem(parameters):
    """The problem's names, its sizes replaced."""
    tree = ast.parse(PROBLEM)
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in parameters:
            node.value = ast.copy_location(ast.Constant(parameters[node.targets[0].id]), node.value)
    space = {"__name__": "problem"}
    exec(compile(tree, "problem", "exec"), space)
    return space


def _model(space, init):
    return space["Model"](*init).eval()


def make_inputs(device, **parameters):
    space = _problem(parameters)
    with torch.device(device):
        inputs = [_moved(value, device) for value in space["get_inputs"]()]
        init = space["get_init_inputs"]()
        # The weights are the same for every seed of the harness.
        with torch.random.fork_rng([device] if str(device).startswith("cuda") else []):
            torch.manual_seed(SEED)
            model = _model(space, init)
    return tuple(inputs), {name: value.detach() for name, value in model.state_dict().items()}, list(init)


def _moved(value, device):
    return value.to(device) if isinstance(value, torch.Tensor) else value


def reference(inputs, weights, init):
    with torch.device("meta"):
        model = _model(_problem({}), init)
    return torch.func.functional_call(model, weights, tuple(inputs))
'''


def is_kernel_bench(text: str) -> bool:
    """Whether it defines all that a problem has."""
    names = {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return names >= NEEDED


def from_kernel_bench(path: Path, text: str) -> Adapted:
    """The task of a problem."""
    sizes = _sizes(ast.parse(text))
    task = (
        "import ast\n\nimport torch\n\n"
        f'ENTRY = "{ENTRY}"\n\nCASES = {{\n    "default": {sizes!r},\n}}\n\n'
        f"# The problem, as it was.\nPROBLEM = {quoted(text)}\n{TASK}"
    )
    kernel = (
        f"{text.rstrip()}\n\n\n# The baseline: a candidate's ModelNew takes the place of this one.\nModelNew = Model\n"
    )
    return Adapted(
        Form.KERNELBENCH,
        path,
        ENTRY,
        f"{kernel}{WRAPPER}",
        task,
        (
            "the reference is the problem's Model, in evaluation mode; the baseline is the same in plain torch, so it "
            "launches no Triton kernel",
            f"a candidate file defines ModelNew, and keeps {ENTRY} as it stands in the baseline's file",
            "weights are drawn once from the seed 42 and handed over by name: a ModelNew has those names and shapes",
            f"the sizes are the problem's own integers at module level: {', '.join(sizes) or 'none were found'}",
            "tolerances are the defaults by dtype, not those of KernelBench (1e-4 for float32, 1e-2 below), which are "
            "wider",
        ),
        has_launches=False,
    )


def _sizes(tree: ast.Module) -> dict[str, int]:
    """Integers at module level that the inputs depend on, by way of other names too."""
    assigned = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    }
    makers = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in NEEDED]
    wanted = {name for node in makers for name in names_in(node)}
    grown = True
    while grown:
        more = {name for found in wanted & assigned.keys() for name in names_in(assigned[found])}
        grown = not more <= wanted
        wanted |= more
    return {
        name: value.value
        for name, value in assigned.items()
        if name in wanted and isinstance(value, ast.Constant) and type(value.value) is int
    }
