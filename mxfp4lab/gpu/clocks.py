"""Clocks, power and temperature of a GPU, where the vendor's library can be read; nothing is ever set.

NVIDIA: NVML through the package nvidia-ml-py (`pynvml`). AMD: the package `amdsmi` that ROCm installs (field names as
its documentation gives them; not yet run on an MI355X).
"""

from __future__ import annotations

import math
from typing import Any

Reading = dict[str, float]
"""sm_mhz, memory_mhz, power_w, temperature_c: those that could be read."""


def read_clocks(index: int = 0) -> Reading:
    """What can be read of GPU `index` now; empty where neither library answers."""
    for read in (_read_nvml, _read_amdsmi):
        try:
            found = read(index)
        except Exception:  # a missing library, a missing permission, an old driver: all mean "cannot be read"
            continue
        if found:
            return found
    return {}


def _read_nvml(index: int) -> Reading:
    import pynvml

    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        readers = {
            "sm_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "memory_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
            "power_w": lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            "temperature_c": lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
        }
        return _collect(readers)
    finally:
        pynvml.nvmlShutdown()


def _read_amdsmi(index: int) -> Reading:
    import amdsmi

    amdsmi.amdsmi_init()
    try:
        handle = amdsmi.amdsmi_get_processor_handles()[index]
        clock, kinds = amdsmi.amdsmi_get_clock_info, amdsmi.AmdSmiClkType
        readers = {
            "sm_mhz": lambda: clock(handle, kinds.GFX)["clk"],
            "memory_mhz": lambda: clock(handle, kinds.MEM)["clk"],
            "power_w": lambda: amdsmi.amdsmi_get_power_info(handle)["current_socket_power"],
            "temperature_c": lambda: amdsmi.amdsmi_get_temp_metric(
                handle, amdsmi.AmdSmiTemperatureType.HOTSPOT, amdsmi.AmdSmiTemperatureMetric.CURRENT),
        }  # fmt: skip
        return _collect(readers)
    finally:
        amdsmi.amdsmi_shut_down()


def _collect(readers: dict[str, Any]) -> Reading:
    found: Reading = {}
    for name, read in readers.items():
        try:
            value = float(read())
        except Exception:  # one sensor that a board lacks must not cost the others
            continue
        if math.isfinite(value):
            found[name] = value
    return found
