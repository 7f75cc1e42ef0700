"""What every executor on this machine knows: the interpreter, the seal, the devices and which of them are trusted."""

from collections.abc import Iterable
from pathlib import Path

import anyio

from .. import nvml
from ..errors import Stopped
from ..isolation import Interpreter, Seal
from ..limits import Limits
from ..outcome import Kind, Problem
from ..rehearsal import describe_interpreter, find_seal
from .base import Device


class Host:
    """This machine, as workers of one interpreter use it; looked at once, when it is first needed."""

    def __init__(
        self,
        python: str,
        limits: Limits,
        *,
        allowed: Iterable[Path] = (),
        hidden: Iterable[Path] = (),
        masked: Iterable[Path] = (),
        require_sandbox: bool = False,
    ) -> None:
        self.python = python
        self.limits = limits
        self._allowed = tuple(allowed)
        self._hidden = tuple(hidden)
        self._masked = tuple(masked)
        self._require_sandbox = require_sandbox
        self._looking = anyio.Lock()
        self._found: tuple[Interpreter, Seal] | None = None
        self._devices: list[Device] | None = None
        self._quarantined: dict[str, str] = {}
        self._unavailable: nvml.NvmlUnavailable | None = None
        self.suspects: set[str] = set()
        """UUIDs of devices on which a worker died or hung: checked before the next one uses them."""

    async def ground(self) -> tuple[Interpreter, Seal]:
        """The interpreter, and how its workers are isolated.

        Raises:
            Stopped: ``unavailable``, for an interpreter that can't be run or a required seal that can't be had.
        """
        async with self._looking:
            if self._found is None:
                interpreter = await describe_interpreter(self.python, self.limits.start_s)
                seal = await find_seal(
                    interpreter,
                    self.limits,
                    allowed=self._allowed,
                    hidden=self._hidden,
                    masked=self._masked,
                    require=self._require_sandbox,
                )
                self._found = interpreter, seal
            return self._found

    async def devices(self) -> list[Device]:
        """The GPUs that the driver shows, quarantined ones included; empty without a driver."""
        if self._devices is None:
            try:
                found = await anyio.to_thread.run_sync(nvml.devices)
            except nvml.NvmlUnavailable as error:
                self._unavailable = error
                return []
            self._devices = [
                Device(index=gpu.index, uuid=gpu.uuid, name=gpu.name, memory_bytes=gpu.memory_total_bytes)
                for gpu in found
            ]
        return [
            device.model_copy(update={"quarantined": self._quarantined.get(device.uuid)}) for device in self._devices
        ]

    def quarantine(self, device: Device, reason: str) -> None:
        """Use this device no more."""
        self._quarantined[device.uuid] = reason

    async def usable_device(self) -> Device:
        """The first device that is not quarantined.

        Raises:
            Stopped: ``unavailable``, where there is none.
        """
        devices = await self.devices()
        usable = [device for device in devices if device.quarantined is None]
        if usable:
            return usable[0]
        if not devices:
            why = self._unavailable
            message = "no GPU is visible to this server" if why is None else f"no GPU can be used: {why.reason}"
            fix = "Look at CUDA_VISIBLE_DEVICES and at nvidia-smi." if why is None else why.remedy
        else:
            message = "; ".join(f"GPU {device.index} is in quarantine: {device.quarantined}" for device in devices)
            fix = "End what holds the device, reset it (nvidia-smi --gpu-reset) or reboot, then start the server anew."
        raise Stopped(Kind.UNAVAILABLE, Problem(stage="environment", message=message, likely_fix=fix))
