# ruff: noqa: N802 - the names are those of C functions
"""A libnvidia-ml for machines without one, behind the real nvidia-ml-py.

What is ours runs as it would: nvidia-ml-py builds the arguments, checks the codes and reads the
structures. Only the C functions are here instead of in a driver. A function that is not here is
one that an older driver lacks, as nvidia-ml-py finds out by its name.

`python -c "import fakenvml; fakenvml.main()" machine.json ARGS` runs `headrace ARGS` on the
machine of that file, which may change while it runs.
"""

import ctypes
import json
import sys
from pathlib import Path

import pynvml

SUCCESS, INVALID, UNSUPPORTED, NOT_FOUND = 0, 2, 3, 6
TIMEOUT, LOST = 10, 15

H200 = {
    "uuid": "GPU-00000000-aaaa-bbbb-cccc-000000000001",
    "name": "NVIDIA H200",
    "bus": "00000000:1B:00.0",
    "util": [37, 12],
    "encoder": 3,
    "decoder": 4,
    "memory": [143_771 << 20, (615 << 20) + 1, 143_155 << 20, 1 << 20],
    "power_mw": 135_383,
    "limits_mw": [700_000, 650_000],
    "energy_mj": 9_007_199_254_740_993,
    "temperature": 46,
    "thresholds": [90, 87],
    "clocks": {"1": 1980, "2": 3201, "3": 1545},
    "max_clocks": {"1": 1980, "2": 3201},
    "pstate": 0,
    "reasons": 4,
    "violations_ns": {"0": 12_345, "1": 0},
    "ecc": {"00": 1, "10": 2, "01": 3, "11": 4},
    "rows": [5, 6, 0, 1],
    "replays": 7,
    "link": [5, 16, 5, 16],
    "fields": {"82": 48, "38": 0, "45": 0, "52": 8, "59": 0},
    "gpm": {
        "1": 99.0, "2": 50.0, "3": 25.0, "5": 12.5, "10": 75.0, "11": 0.0, "12": 1.0, "13": 0.5,
        "20": 2.0, "21": 4.0, "60": 8.0, "61": 16.0,
    },
    "xids": [],
    "slices": [],
}  # fmt: skip
"""A machine's GPU, with invented values. What is left out, the device does not support."""


class Library:
    """The C functions that nvidia-ml-py looks up."""

    def __init__(self, machine: Path) -> None:
        self._machine = machine
        self._gpus: list[dict] = []
        self._targets: dict[int, dict] = {}
        self._keep: list[object] = []
        self._read()

    def _read(self) -> None:
        self._gpus = json.loads(self._machine.read_text())

    def _point(self, pointer, target) -> None:
        """Has `pointer` name `target`, for the life of the process."""
        room = ctypes.create_string_buffer(8)
        self._keep.append(room)
        address = ctypes.addressof(room)
        self._targets[address] = target
        ctypes.cast(ctypes.addressof(pointer), ctypes.POINTER(ctypes.c_void_p))[0] = address

    def _target(self, handle):
        return self._targets[ctypes.cast(handle, ctypes.c_void_p).value]

    def _gpu(self, handle):
        """The GPU, or the slice, as the machine's file has it now; None where it is lost."""
        self._read()
        index, place = self._target(handle)
        gpu = self._gpus[index]
        if gpu.get("lost"):
            return None
        return gpu if place is None else gpu["slices"][place]

    def nvmlInitWithFlags(self, _flags):
        return SUCCESS

    def nvmlShutdown(self):
        return SUCCESS

    def nvmlSystemGetDriverVersion(self, text, _length):
        text.value = b"570.1"
        return SUCCESS

    def nvmlDeviceGetCount_v2(self, count):
        count._obj.value = len(self._gpus)
        return SUCCESS

    def nvmlDeviceGetHandleByIndex_v2(self, index, handle):
        self._point(handle._obj, (index.value, None))
        return SUCCESS

    def nvmlDeviceGetUUID(self, handle, text, _length):
        gpu = self._gpu(handle)
        if gpu is None:
            return LOST
        text.value = gpu["uuid"].encode()
        return SUCCESS

    def nvmlDeviceGetName(self, handle, text, _length):
        text.value = self._gpu(handle)["name"].encode()
        return SUCCESS

    def nvmlDeviceGetPciInfo_v3(self, handle, info):
        info._obj.busId = self._gpu(handle)["bus"].encode()
        return SUCCESS

    # --- values: what the machine's file does not have is not supported

    def _put(self, handle, key, *outs, keys=()):
        gpu = self._gpu(handle)
        if gpu is None:
            return LOST
        value = gpu.get(key)
        for each in keys:
            value = None if value is None else value.get(str(each))
        if value is None:
            return UNSUPPORTED
        values = value if isinstance(value, list) else [value]
        for out, one in zip(outs, values, strict=False):
            out._obj.value = one
        return SUCCESS

    def nvmlDeviceGetUtilizationRates(self, handle, rates):
        gpu = self._gpu(handle)
        if gpu is None or "util" not in gpu:
            return LOST if gpu is None else UNSUPPORTED
        rates._obj.gpu, rates._obj.memory = gpu["util"]
        return SUCCESS

    def nvmlDeviceGetMemoryInfo_v2(self, handle, memory):
        gpu = self._gpu(handle)
        if gpu is None or "memory" not in gpu:
            return LOST if gpu is None else UNSUPPORTED
        if memory._obj.version != pynvml.nvmlMemory_v2:
            return INVALID
        out = memory._obj
        out.total, out.used, out.free, out.reserved = gpu["memory"]
        return SUCCESS

    def nvmlDeviceGetEncoderUtilization(self, handle, value, _period):
        return self._put(handle, "encoder", value)

    def nvmlDeviceGetDecoderUtilization(self, handle, value, _period):
        return self._put(handle, "decoder", value)

    def nvmlDeviceGetPowerUsage(self, handle, value):
        return self._put(handle, "power_mw", value)

    def nvmlDeviceGetPowerManagementLimit(self, handle, value):
        return self._put(handle, "limits_mw", value)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle, value):
        gpu = self._gpu(handle)
        if gpu is None:
            return LOST
        value._obj.value = gpu["limits_mw"][1]
        return SUCCESS

    def nvmlDeviceGetTotalEnergyConsumption(self, handle, value):
        return self._put(handle, "energy_mj", value)

    def nvmlDeviceGetTemperature(self, handle, _sensor, value):
        return self._put(handle, "temperature", value)

    def nvmlDeviceGetTemperatureThreshold(self, handle, threshold, value):
        gpu = self._gpu(handle)
        if gpu is None:
            return LOST
        value._obj.value = gpu["thresholds"][threshold.value]
        return SUCCESS

    def nvmlDeviceGetClockInfo(self, handle, kind, value):
        return self._put(handle, "clocks", value, keys=[kind.value])

    def nvmlDeviceGetMaxClockInfo(self, handle, kind, value):
        return self._put(handle, "max_clocks", value, keys=[kind.value])

    def nvmlDeviceGetPerformanceState(self, handle, value):
        return self._put(handle, "pstate", value)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle, value):
        return self._put(handle, "reasons", value)

    def nvmlDeviceGetViolationStatus(self, handle, policy, out):
        gpu = self._gpu(handle)
        if gpu is None:
            return LOST
        time_ns = gpu["violations_ns"].get(str(policy.value))
        if time_ns is None:
            return INVALID
        out._obj.violationTime = time_ns
        return SUCCESS

    def nvmlDeviceGetTotalEccErrors(self, handle, kind, counter, value):
        return self._put(handle, "ecc", value, keys=[f"{kind.value}{counter.value}"])

    def nvmlDeviceGetRemappedRows(self, handle, *outs):
        return self._put(handle, "rows", *outs)

    def nvmlDeviceGetPcieReplayCounter(self, handle, value):
        return self._put(handle, "replays", value)

    def _link(self, handle, at, value):
        gpu = self._gpu(handle)
        if gpu is None:
            return LOST
        value._obj.value = gpu["link"][at]
        return SUCCESS

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle, value):
        return self._link(handle, 0, value)

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle, value):
        return self._link(handle, 1, value)

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle, value):
        return self._link(handle, 2, value)

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle, value):
        return self._link(handle, 3, value)

    def nvmlDeviceGetFieldValues(self, handle, count, values):
        gpu = self._gpu(handle)
        if gpu is None:
            return LOST
        for value in values._obj[: count.value]:
            found = gpu["fields"].get(str(value.fieldId))
            value.nvmlReturn = UNSUPPORTED if found is None else SUCCESS
            value.valueType = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
            value.value.uiVal = found or 0
        return SUCCESS

    # --- profiling

    def nvmlGpmQueryDeviceSupport(self, handle, support):
        gpu = self._gpu(handle)
        if gpu is None:
            return LOST
        support._obj.isSupportedDevice = int("gpm" in gpu)
        return SUCCESS

    def nvmlGpmSampleAlloc(self, sample):
        self._point(sample._obj, {})
        return SUCCESS

    def nvmlGpmSampleFree(self, _sample):
        return SUCCESS

    def nvmlGpmSampleGet(self, handle, sample):
        gpu = self._gpu(handle)
        if gpu is None:
            return LOST
        self._target(sample).update(taken=True, values=gpu["gpm"])
        return SUCCESS

    def nvmlGpmMigSampleGet(self, handle, slice_id, sample):
        gpu = self._gpu(handle)
        (found,) = (each for each in gpu["slices"] if each["id"] == slice_id)
        self._target(sample).update(taken=True, values=found["gpm"])
        return SUCCESS

    def nvmlGpmMetricsGet(self, question):
        asked = question._obj
        first, second = self._target(asked.sample1), self._target(asked.sample2)
        if asked.version != pynvml.NVML_GPM_METRICS_GET_VERSION or first is second:
            return INVALID
        if not first.get("taken") or not second.get("taken"):
            return INVALID
        for metric in asked.metrics[: asked.numMetrics]:
            value = second["values"].get(str(metric.metricId))
            metric.nvmlReturn = UNSUPPORTED if value is None else SUCCESS
            metric.value = value or 0.0
        return SUCCESS

    # --- slices

    def nvmlDeviceGetMigMode(self, handle, current, _pending):
        gpu = self._gpu(handle)
        if gpu is None:
            return LOST
        current._obj.value = int(bool(gpu["slices"]))
        return SUCCESS

    def nvmlDeviceGetMaxMigDeviceCount(self, _handle, count):
        count._obj.value = 7
        return SUCCESS

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle, place, out):
        index, _ = self._target(handle)
        place = getattr(place, "value", place)
        if place >= len(self._gpus[index]["slices"]):
            return NOT_FOUND
        self._point(out._obj, (index, place))
        return SUCCESS

    def nvmlDeviceGetGpuInstanceId(self, handle, slice_id):
        slice_id._obj.value = self._gpu(handle)["id"]
        return SUCCESS

    # --- events

    def nvmlEventSetCreate(self, events):
        self._point(events._obj, {"seen": {}})
        return SUCCESS

    def nvmlEventSetFree(self, _events):
        return SUCCESS

    def nvmlDeviceRegisterEvents(self, handle, _kinds, events):
        gpu = self._gpu(handle)
        if gpu is None or "xids" not in gpu:
            return UNSUPPORTED
        self._target(events)["seen"][self._target(handle)[0]] = 0
        return SUCCESS

    def nvmlEventSetWait_v2(self, events, data, _timeout):
        self._read()
        seen = self._target(events)["seen"]
        for index, many in seen.items():
            if many < len(self._gpus[index]["xids"]):
                data._obj.eventData = self._gpus[index]["xids"][many]
                self._point_in(data._obj, (index, None))
                seen[index] += 1
                return SUCCESS
        return TIMEOUT

    def _point_in(self, data, target) -> None:
        device = type(data.device)()
        self._point(device, target)
        data.device = device


def install(machine: Path) -> None:
    """Puts it where nvidia-ml-py finds what it has loaded."""
    pynvml.nvmlLib = Library(machine)
    pynvml._nvmlGetFunctionPointer_cache.clear()


def main() -> None:
    """Runs `headrace` on a machine that a file describes."""
    from headrace.cli import main as headrace  # noqa: PLC0415 - tests need no commands

    install(Path(sys.argv.pop(1)))
    headrace()
