"""The catalogue of known GPUs: from a target's name, or from what a device calls itself, to its numbers."""

import difflib
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .model import Gpu, SmLimits, Target

_SM = re.compile(r"sm-?(\d+)[af]?")
_VENDOR = re.compile(r"^(?:nvidia|amd)-(?:instinct-)?")
# A device reports a little less memory than the data sheet says: up to 6.5 % where ECC takes its share.
_MEMORY_TOLERANCE = 0.1


class UnknownTarget(ValueError):
    """A target's name that the catalogue does not hold; the message says which names it does."""

    def __init__(self, given: str, nearest: str | None, allowed: tuple[str, ...]) -> None:
        hint = f" Nearest: {nearest}." if nearest else ""
        super().__init__(f"unknown target {given!r}.{hint} Allowed: {', '.join(allowed)}.")
        self.given = given
        self.nearest = nearest
        self.allowed = allowed


@dataclass(frozen=True, slots=True)
class _Catalog:
    limits: dict[int, SmLimits]
    gpus: dict[str, Gpu]
    names: dict[str, str]
    """Every accepted name of a product, catalogue names included, to the catalogue name."""
    architectures: dict[str, SmLimits]
    """Every accepted name of an architecture."""


@cache
def _catalog() -> _Catalog:
    text = Path(__file__).with_name("catalog.toml").read_text(encoding="utf-8")
    raw: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(text)
    found = [SmLimits(architecture=f"sm_{number}", capability=int(number), **sm) for number, sm in raw["sm"].items()]
    aliases: dict[str, SmLimits] = {}
    for name, cu in raw["cu"].items():
        names = cu.pop("aliases")
        found.append(SmLimits(vendor="amd", architecture=name, **cu))
        aliases |= dict.fromkeys(names, found[-1])
    limits = {each.capability: each for each in found}
    architectures = {each.architecture: each for each in found} | aliases
    gpus = {name: Gpu(name=name, **gpu) for name, gpu in raw["gpu"].items()}
    names = {alias: gpu.name for gpu in gpus.values() for alias in (gpu.name, *gpu.aliases)}
    return _Catalog(limits, gpus, names, architectures)


def gpus() -> tuple[Gpu, ...]:
    """All products of the catalogue, Hopper first and AMD's last."""
    return tuple(_catalog().gpus.values())


def target_names() -> tuple[str, ...]:
    """Every name that `resolve_target` takes: products with their aliases, then architectures."""
    catalog = _catalog()
    return (*catalog.names, *catalog.architectures)


def resolve_target(name: str) -> Target:
    """Finds a target by catalogue name, alias or architecture.

    Case does not matter, spaces and underscores count as dashes ("H100 SXM"), the vendor's name in front is dropped,
    and `sm_90a` and `sm90` mean `sm_90`, as `cdna3` means `gfx942`.

    Raises:
        UnknownTarget: nothing of that name; the message names the nearest and all allowed names.
    """
    catalog = _catalog()
    key = _VENDOR.sub("", re.sub(r"[\s_-]+", "-", name.strip().lower()))
    if known := catalog.names.get(key):
        gpu = catalog.gpus[known]
        return Target(name=gpu.name, capability=gpu.capability, gpu=gpu, limits=catalog.limits[gpu.capability])
    spelling = f"sm_{match[1]}" if (match := _SM.fullmatch(key)) else key
    if limits := catalog.architectures.get(spelling):
        return Target(name=limits.architecture, capability=limits.capability, limits=limits)
    allowed = target_names()
    spelled = {allowed_name.replace("_", "-"): allowed_name for allowed_name in allowed}
    close = difflib.get_close_matches(key, spelled, n=1, cutoff=0.5)
    raise UnknownTarget(name, spelled[close[0]] if close else None, allowed)


def find_gpu(device_name: str, memory_bytes: int | None, sm_count: int | None) -> Gpu | None:
    """Maps a present device to the catalogue, or to None where anything speaks against it.

    A device with less memory or fewer SMs than the product (a MIG slice, a virtual GPU, an unlisted variant) is
    not the product: its numbers would be wrong.

    Args:
        device_name: as CUDA and the driver report it, such as "NVIDIA H100 80GB HBM3".
        memory_bytes: total memory of the device, where known.
        sm_count: SMs of the device, where known.
    """
    wanted = _device_key(device_name)
    for gpu in gpus():
        if wanted in map(_device_key, gpu.device_names):
            return gpu if _agrees(gpu, memory_bytes, sm_count) else None
    return None


def _device_key(device_name: str) -> str:
    return re.sub(r"[\s_-]+", " ", device_name.strip().lower()).removeprefix("nvidia ")


def _agrees(gpu: Gpu, memory_bytes: int | None, sm_count: int | None) -> bool:
    if sm_count is not None and sm_count != gpu.sm_count:
        return False
    if memory_bytes is None or gpu.memory_bytes is None:
        return True
    return abs(memory_bytes / gpu.memory_bytes - 1) <= _MEMORY_TOLERANCE
