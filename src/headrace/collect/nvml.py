"""The GPUs of this machine, read through NVML: one round is a `Reading` for each value.

Owns handles, MIG slices, samples of GPM and events of XID. Which call gives which field is in
`nvml_fields`. What a device does not support is not asked again, and said once; a device that
fails for a while is said when that begins and ends. A field without value is absent, never 0.

A slice is its parent's UUID with `GPU_I_ID`, as dcgm-exporter has it, and has only what is its
own: memory and profiling. What is the board's (power, energy, temperature) is read once, without
`GPU_I_ID`, so that sums over slices do not multiply it.
"""

from __future__ import annotations

import contextlib
import importlib
import socket
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from headrace.collect.conditions import Condition
from headrace.collect.instants import format_instant
from headrace.collect.nvml_fields import Profiled, Source, memory_source, profiled, sources, text
from headrace.collect.readings import Reading
from headrace.errors import DeviceError
from headrace.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_XID: Final = "DCGM_FI_DEV_XID_ERRORS"
_PROFILING: Final = "DCGM_FI_PROF_*"
_START_AGAIN_S: Final = 60.0
_EVENTS_PER_ROUND_MAX: Final = 1_000
"""XIDs of one round; what is beyond it comes in the next."""


class _Part(NamedTuple):
    """A device, or a MIG slice of it."""

    uuid: str
    name: str
    """How a person is told of it."""
    device: str
    labels: Mapping[str, str]
    handle: Any
    parent: Any
    slice_id: int | None


class Gpus:
    """All GPUs of this machine; use it from one thread at a time.

    Args:
        nvml: nvidia-ml-py's module.
        say: prints a line for a person.
    """

    def __init__(self, nvml: Any, say: Callable[[str], None]) -> None:  # noqa: ANN401
        self.say = say
        self._nvml = nvml
        self._host = socket.gethostname()
        self._sources, self._memory = sources(nvml), memory_source(nvml)
        self._profiled = profiled(nvml)
        self._devices: list[_Part] = []
        self._unsupported: dict[tuple[str, int | None], set[str]] = defaultdict(set)
        self._said: set[tuple[str, tuple[str, ...]]] = set()
        self._failing: dict[str, Condition] = defaultdict(Condition)
        self._samples: dict[tuple[str, int | None], Any] = {}
        self._spare: list[Any] = []
        self._events: Any = None
        self._last_xid: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._missing: set[str] = set()
        """Devices that were none when they were looked for."""
        self._dark: set[str] = set()
        """Devices that gave no value in a round."""
        self._start_again_at = time.monotonic() + _START_AGAIN_S

    @classmethod
    def open(cls, say: Callable[[str], None]) -> Self:
        """Finds the GPUs.

        Raises:
            DeviceError: there is no NVML, no driver or no GPU; the message says what to install.
        """
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            raise DeviceError(
                "the GPUs of this machine are read by nvidia-ml-py, which is not installed\n"
                "install it: pip install 'headrace[gpu]'"
            ) from None
        gpus = cls(nvml, say)
        gpus.start()
        return gpus

    def start(self) -> None:
        """Begins with the devices that there are now.

        Raises:
            DeviceError: there are none.
        """
        nvml = self._nvml
        try:
            nvml.nvmlInit()
            driver = nvml.nvmlSystemGetDriverVersion()
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as fault:
            raise DeviceError(_no_driver(nvml, fault)) from None
        if not count:
            raise DeviceError(
                "the NVIDIA driver is here and sees no GPU; look with nvidia-smi, and in a "
                "container ask for them (docker run --gpus all)"
            )
        self._missing.clear()
        self._devices = [part for at in range(count) if (part := self._device(at, driver))]
        self._register_events()
        for part in self._parts():
            self._sample(part)

    def close(self) -> None:
        """Lets go of the driver."""
        nvml = self._nvml
        with contextlib.suppress(nvml.NVMLError):
            for sample in (*self._samples.values(), *self._spare):
                nvml.nvmlGpmSampleFree(sample)
        self._samples.clear()
        self._spare.clear()
        with contextlib.suppress(nvml.NVMLError):
            if self._events is not None:
                nvml.nvmlEventSetFree(self._events)
        self._events = None
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()

    def read(self, now_us: int) -> list[Reading]:
        """One round; empty where no device answers.

        While one does not, the devices are found anew from time to time: after a reset, or a
        reload of the driver, a handle is none any more.
        """
        self._dark = set(self._missing)
        readings = list(self._round(now_us))
        self._say_unsupported()
        now = time.monotonic()
        if not self._dark:
            self._start_again_at = now + _START_AGAIN_S
        if not readings or now >= self._start_again_at:
            self._start_again_at = now + _START_AGAIN_S
            self.close()
            with contextlib.suppress(DeviceError):  # each device has said that it fails
                self.start()
        return readings

    def _round(self, now_us: int) -> Iterator[Reading]:
        stamp = format_instant(now_us)
        for part in self._parts():
            for name, value in self._values(part):
                yield Reading(
                    stamp, now_us, name, part.uuid, part.device, self._host, value, part.labels
                )
        yield from self._xids(now_us)

    # --- devices and slices

    def _device(self, index: int, driver: str) -> _Part | None:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid, model = nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle)
            bus_id = nvml.nvmlDeviceGetPciInfo(handle).busId
        except nvml.NVMLError as fault:
            name = self._names.get(index, f"GPU {index}")
            self._missing.add(name)
            self._failed(name, fault)
            return None
        labels = {
            "gpu": str(index),
            "model_name": model,
            "driver_version": driver,
            "pci_bus_id": bus_id.decode() if isinstance(bus_id, bytes) else bus_id,
        }
        self._answered(f"GPU {index}")
        name = self._names[index] = f"{uuid} ({model})"
        return _Part(uuid, name, f"nvidia{index}", labels, handle, handle, None)

    def _parts(self) -> Iterator[_Part]:
        for device in self._devices:
            yield device
            yield from self._slices(device)

    def _slices(self, device: _Part) -> Iterator[_Part]:
        """MIG slices, as they are now; compute instances of one share its memory."""
        nvml = self._nvml
        try:
            if not nvml.nvmlDeviceGetMigMode(device.handle)[0]:
                return
            places = nvml.nvmlDeviceGetMaxMigDeviceCount(device.handle)
        except nvml.NVMLError:  # has none
            return
        seen: set[int] = set()
        for place in range(places):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(device.handle, place)
                slice_id = nvml.nvmlDeviceGetGpuInstanceId(handle)
                profile = nvml.nvmlDeviceGetName(handle).rpartition("MIG ")[2]
            except nvml.NVMLError:  # nobody has that place
                continue
            if slice_id not in seen:
                seen.add(slice_id)
                labels = {**device.labels, "GPU_I_ID": str(slice_id), "GPU_I_PROFILE": profile}
                yield device._replace(
                    name=f"slices {profile} of {device.labels['model_name']}",
                    labels=labels, handle=handle, slice_id=slice_id,
                )  # fmt: skip

    # --- values

    def _values(self, part: _Part) -> Iterator[tuple[str, str]]:
        """Names and texts of what a part says; whether the device fails is told to a person."""
        unsupported = self._unsupported[part.uuid, part.slice_id]
        fault, found = None, False
        for source in self._sources if part.slice_id is None else [self._memory]:
            if source.names[0] in unsupported:
                continue
            values, fault_now = self._ask(part, source, unsupported)
            fault = fault or fault_now
            for name, value in values:
                found = True
                yield name, value
        for name, value in self._profile(part, unsupported):
            found = True
            yield name, value
        if part.slice_id is not None:
            return
        if fault is None:
            self._answered(part.name)
            return
        if not found:
            self._dark.add(part.name)
        self._failed(part.name if not found else f"{part.name}, some values", fault)

    def _ask(
        self, part: _Part, source: Source, unsupported: set[str]
    ) -> tuple[list[tuple[str, str]], Exception | None]:
        try:
            values = source.read(part.handle)
        except self._lacks() as fault:
            del fault
            unsupported.update(source.names)
            return [], None
        except self._nvml.NVMLError as fault:
            return [], fault
        return [
            (name, text(value))
            for name, value in zip(source.names, values, strict=True)
            if value is not None
        ], None

    def _lacks(self) -> tuple[type[Exception], ...]:
        """What says that a device will never have this."""
        nvml = self._nvml
        return (
            nvml.NVMLError_NotSupported,
            nvml.NVMLError_FunctionNotFound,
            nvml.NVMLError_InvalidArgument,
            nvml.NVMLError_NoPermission,
        )

    # --- profiling

    def _sample(self, part: _Part) -> Any:  # noqa: ANN401
        """A sample of GPM, now; the one before it, or None where there is none to compare with."""
        nvml = self._nvml
        key = (part.uuid, part.slice_id)
        unsupported = self._unsupported[key]
        if _PROFILING in unsupported:
            return None
        try:
            if not nvml.nvmlGpmQueryDeviceSupport(part.parent).isSupportedDevice:
                unsupported.add(_PROFILING)
                return None
            if not self._spare:
                self._spare.append(nvml.nvmlGpmSampleAlloc())
            sample = self._spare[-1]
            if part.slice_id is None:
                nvml.nvmlGpmSampleGet(part.handle, sample)
            else:
                nvml.nvmlGpmMigSampleGet(part.parent, part.slice_id, sample)
        except self._lacks():
            unsupported.add(_PROFILING)
            return None
        except nvml.NVMLError:  # told by the device's other calls
            return None
        self._spare.pop()
        before = self._samples.get(key)
        self._samples[key] = sample
        return before

    def _profile(self, part: _Part, unsupported: set[str]) -> list[tuple[str, str]]:
        nvml = self._nvml
        before = self._sample(part)
        if before is None:
            return []
        wanted = [each for each in self._profiled if each.name not in unsupported]
        question = nvml.c_nvmlGpmMetricsGet_t()
        question.version = nvml.NVML_GPM_METRICS_GET_VERSION
        question.numMetrics = len(wanted)
        question.sample1, question.sample2 = before, self._samples[part.uuid, part.slice_id]
        for answer, each in zip(question.metrics, wanted, strict=False):
            answer.metricId = each.metric
        try:
            nvml.nvmlGpmMetricsGet(question)
        except nvml.NVMLError:
            return []
        finally:
            self._spare.append(before)
        return list(self._answers(wanted, question, unsupported))

    def _answers(
        self, wanted: list[Profiled], question: Any, unsupported: set[str]  # noqa: ANN401
    ) -> Iterator[tuple[str, str]]:  # fmt: skip
        nvml = self._nvml
        for answer, each in zip(question.metrics, wanted, strict=False):
            if answer.nvmlReturn == nvml.NVML_SUCCESS:
                yield each.name, text(float(answer.value * each.scale))
            elif answer.nvmlReturn == nvml.NVML_ERROR_NOT_SUPPORTED:
                unsupported.add(each.name)

    # --- XID

    def _register_events(self) -> None:
        nvml = self._nvml
        try:
            self._events = nvml.nvmlEventSetCreate()
        except nvml.NVMLError:
            self._events = None
        for device in self._devices:
            if not self._registered(device):
                self._unsupported[device.uuid, None].add(_XID)

    def _registered(self, device: _Part) -> bool:
        nvml = self._nvml
        if self._events is None:
            return False
        try:
            nvml.nvmlDeviceRegisterEvents(
                device.handle, nvml.nvmlEventTypeXidCriticalError, self._events
            )
        except nvml.NVMLError:
            return False
        return True

    def _xids(self, now_us: int) -> Iterator[Reading]:
        """Each XID since the round before, else the last one of a GPU; absent where none was."""
        fresh: set[str] = set()
        parts = {device.uuid: device for device in self._devices}
        for at, (uuid, code) in enumerate(self._new_xids()):
            if uuid in parts:
                fresh.add(uuid)
                self._last_xid[uuid] = code
                # A microsecond apart: of two readings of one time the pipeline keeps one.
                yield self._xid(parts[uuid], code, now_us + at)
        for uuid, code in self._last_xid.items():
            if uuid not in fresh and uuid in parts:
                yield self._xid(parts[uuid], code, now_us)

    def _new_xids(self) -> Iterator[tuple[str, int]]:
        nvml = self._nvml
        if self._events is None:
            return
        for _ in range(_EVENTS_PER_ROUND_MAX):
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
                uuid = nvml.nvmlDeviceGetUUID(event.device)
            except nvml.NVMLError:  # a timeout: there is no more
                return
            yield uuid, int(event.eventData)

    def _xid(self, part: _Part, code: int, now_us: int) -> Reading:
        stamp = format_instant(now_us)
        return Reading(
            stamp, now_us, _XID, part.uuid, part.device, self._host, str(code), part.labels
        )

    # --- what is said

    def _say_unsupported(self) -> None:
        """Once for each model and set of fields; devices alike are one line."""
        groups: dict[tuple[str, tuple[str, ...]], int] = defaultdict(int)
        for part in self._parts():
            if lacking := self._unsupported[part.uuid, part.slice_id]:
                what = part.labels["model_name"] if part.slice_id is None else part.name
                groups[what, tuple(sorted(lacking))] += 1
        for group, many in groups.items():
            if group not in self._said:
                self._said.add(group)
                what, lacking_names = group
                names = ", ".join(name.removeprefix("DCGM_FI_") for name in lacking_names)
                self.say(
                    f"{what} ({counted(many, 'device')}): does not have, or this user may not "
                    f"read: {names}; left out"
                )

    def _failed(self, name: str, fault: Exception) -> None:
        if self._failing[name].seen(str(fault), time.monotonic()):
            self.say(f"{name}: cannot be read ({fault}); asked again each round")

    def _answered(self, name: str) -> None:
        for condition in (self._failing[name], self._failing[f"{name}, some values"]):
            seconds = condition.absent(time.monotonic())
            if seconds is not None:
                self.say(f"{name}: is read again, after {seconds:.0f} s")


def _no_driver(nvml: Any, fault: Exception) -> str:  # noqa: ANN401
    if isinstance(fault, (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded)):
        return (
            f"no NVIDIA driver here ({fault})\n"
            "install it; in a container, install NVIDIA's container toolkit on the host and ask "
            "for GPUs (docker run --gpus all)"
        )
    return (
        f"NVML does not start ({fault})\nlook with nvidia-smi; reboot after an update of the driver"
    )
