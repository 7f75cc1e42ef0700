# pyright: basic
# torch and triton ship incomplete types.
"""What the candidate's autotuners and heuristics chose in this process, and what choosing cost.

Triton's autotuner forgets: it keeps the configuration for each key, and the time of its last search alone. So each
search is noted as it goes on. What is put around Triton's methods here runs when a tuner is made and while it tries a
configuration: a launch takes as long as ever, except one with heuristics, until `unwatch`.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

from triton.runtime.autotuner import Autotuner, Heuristics

from .launches import is_own

TUNERS_LIMIT = 1000
"""Autotuners and heuristics remembered."""
TRIALS_LIMIT = 100_000
"""Configurations tried that are remembered."""
ENTRIES_LIMIT = 64
"""Of a report: the last."""
TEXT_LIMIT = 300
"""Characters of a configuration."""
OPTIONS = {"num_warps": (), "num_stages": (), "num_ctas": (1, None), "maxnreg": (None,), "ir_override": (None,)}
"""The compiler's part of a configuration, and the values that go without saying."""


@dataclasses.dataclass(slots=True)
class _Tuner:
    """What is known of one autotuner."""

    tuner: Autotuner
    trials: list[tuple[int, float]] = dataclasses.field(default_factory=list)
    """Of each configuration that was compiled and timed: for how many keys a choice had been made by then, which is the
    place of the key that it was tried for; and the seconds that it took."""


@dataclasses.dataclass(slots=True)
class _Guide:
    """What is known of one set of heuristics."""

    heuristics: Heuristics
    own: dict[str, Any]
    """Its functions, as the candidate gave them."""
    noting: dict[str, Any] = dataclasses.field(default_factory=dict)
    chosen: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What each gave last."""


_tuners: dict[int, _Tuner] = {}
"""By identity; each holds its tuner, so that none takes the place of another."""
_guides: list[_Guide] = []
_trials = 0
_installed = False
_watching = False


def watch() -> None:
    """From now on, note every autotuner and every set of heuristics that is made; further calls do nothing."""
    global _installed, _watching
    _watching = True
    if _installed:
        return
    _installed = True
    _around(Autotuner, "__init__", _made)
    _around(Autotuner, "_bench", _tried)
    _around(Heuristics, "__init__", _guided)


def unwatch() -> None:
    """Heuristics take as long as ever again; what they gave last stays known, and autotuners are still seen."""
    global _watching
    _watching = False
    for guide in _guides:
        # What the candidate has put there since stays.
        if guide.heuristics.values is guide.noting:
            guide.heuristics.values = guide.own


def report() -> list[dict[str, Any]]:
    """What was chosen, one entry for each kernel of the candidate's own and each key, by the order of their making.

    Each entry holds ``kernel`` (the Python function's name), ``configuration`` in words, such as "BLOCK_M: 128,
    num_warps: 8, num_stages: 3", behind it the key in brackets where the kernel has several, ``configurations`` (how
    many were tried; 1 where there was no choice) and ``tuning_s`` (what compiling and timing them took; None where
    none was tried). Heuristics choose from one, and not by trying.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for noted in _tuners.values():
        # Set by each launch, also where there is no choice.
        if "best_config" in vars(noted.tuner) and is_own(noted.tuner.base_fn):
            for key, entry in _autotuned(noted):
                # An entry that makes its tuner anew in each call pays each time.
                before = found.pop((entry["kernel"], key), None)
                if before is not None and before["tuning_s"] is not None:
                    entry["tuning_s"] = before["tuning_s"] + (entry["tuning_s"] or 0.0)
                found[entry["kernel"], key] = entry
    kernels = [kernel for kernel, _ in found]
    for (kernel, key), entry in found.items():
        if kernels.count(kernel) > 1:
            entry["configuration"] = f"{entry['configuration']} [{key}]"[:TEXT_LIMIT]
    guided = {entry["kernel"]: entry for guide in _guides for entry in _by_heuristics(guide)}
    return [*found.values(), *guided.values()][-ENTRIES_LIMIT:]


def _autotuned(noted: _Tuner) -> list[tuple[str, dict[str, Any]]]:
    """An autotuner's choices, each with its key in words."""
    tuner = noted.tuner
    found: list[tuple[str, dict[str, Any]]] = []
    for place, (key, config) in enumerate(list(tuner.cache.items()) or [((), vars(tuner)["best_config"])]):
        seconds = [taken for before, taken in noted.trials if before == place]
        entry = {
            "kernel": tuner.base_fn.__name__,
            "configuration": in_words(config),
            "configurations": max(len(seconds), 1),
            "tuning_s": sum(seconds) if seconds else None,
        }
        found.append((_key_in_words(tuner.keys, key), entry))
    return found


def _by_heuristics(guide: _Guide) -> list[dict[str, Any]]:
    """What heuristics gave last, where they were asked."""
    function: Any = guide.heuristics
    while hasattr(function, "fn"):
        function = function.fn
    if not guide.chosen or not is_own(function):
        return []
    chosen = _pairs(guide.chosen)
    return [{"kernel": function.__name__, "configuration": chosen, "configurations": 1, "tuning_s": None}]


def in_words(config: Any) -> str:
    """A configuration: its own parameters, then the compiler's options that say something."""
    options = {name: getattr(config, name, None) for name in OPTIONS}
    return _pairs({**config.kwargs, **{name: value for name, value in options.items() if value not in OPTIONS[name]}})


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in values.items())[:TEXT_LIMIT]


def _key_in_words(names: Any, key: tuple[Any, ...]) -> str:
    """Values of the key's arguments, then the types of all tensors: so a tuner puts it together."""
    parts = [f"{name}: {value}" for name, value in zip(names, key, strict=False)]
    return ", ".join([*parts, *(str(dtype).removeprefix("torch.") for dtype in key[len(parts) :])])


def _around(owner: Any, name: str, note: Callable[..., Any]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return note(original, self, *args, **kwargs)

    setattr(owner, name, method)


def _made(original: Any, tuner: Any, /, *args: Any, **kwargs: Any) -> None:
    original(tuner, *args, **kwargs)
    if len(_tuners) < TUNERS_LIMIT:
        _tuners[id(tuner)] = _Tuner(tuner)


def _tried(original: Any, tuner: Any, /, *args: Any, **kwargs: Any) -> Any:
    """One configuration, compiled and timed."""
    global _trials
    noted = _tuners.get(id(tuner))
    if noted is None or _trials == TRIALS_LIMIT:
        return original(tuner, *args, **kwargs)
    _trials += 1
    place, started = len(tuner.cache), time.perf_counter()
    try:
        return original(tuner, *args, **kwargs)
    finally:
        noted.trials.append((place, time.perf_counter() - started))


def _guided(original: Any, heuristics: Any, /, *args: Any, **kwargs: Any) -> None:
    original(heuristics, *args, **kwargs)
    if _watching and len(_guides) < TUNERS_LIMIT:
        guide = _Guide(heuristics, heuristics.values)
        guide.noting.update({name: _noting(guide, name, choose) for name, choose in guide.own.items()})
        heuristics.values = guide.noting
        _guides.append(guide)


def _noting(guide: _Guide, name: str, choose: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(choose)
    def noted(arguments: Any) -> Any:
        guide.chosen[name] = value = choose(arguments)
        return value

    return noted
