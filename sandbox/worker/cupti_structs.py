# pyright: basic
"""Parameters of CUPTI's Range Profiler and Profiler Host API, as in its headers.

Each function takes the address of one structure, which starts with its own size: not ``sizeof``, but where its last
field ends (``CUPTI_PROFILER_STRUCT_SIZE``). The layouts are the same from CUDA 12.8 to 13.0 (cupti_profiler_target.h,
cupti_profiler_host.h, cupti_range_profiler.h, cupti_target.h).
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_size_t, c_uint8, c_uint16, c_uint32, c_void_p
from typing import Any

AUTO_RANGE = 1
"""CUPTI_AutoRange: each kernel launch is a range."""
USER_REPLAY = 3
"""CUPTI_UserReplay: whoever profiles runs the kernels again for each further pass."""
RANGE_PROFILER = 0
"""CUPTI_PROFILER_TYPE_RANGE_PROFILER."""


class Params(ctypes.Structure):
    """A structure of parameters; ``filled`` makes one."""

    STRUCT_SIZE: int

    @classmethod
    def filled(cls, **fields: Any) -> Any:
        return cls(structSize=cls.STRUCT_SIZE, **fields)


def _params(name: str, **fields: Any) -> type[Params]:
    members = [("structSize", c_size_t), ("pPriv", c_void_p), *fields.items()]
    made = type(name, (Params,), {"_fields_": members})
    last = getattr(made, members[-1][0])
    made.STRUCT_SIZE = last.offset + last.size
    return made


PROFILER_INITIALIZE = _params("CUpti_Profiler_Initialize_Params")
CHIP_NAME = _params("CUpti_Device_GetChipName_Params", deviceIndex=c_size_t, pChipName=c_char_p)

HOST_INITIALIZE = _params(
    "CUpti_Profiler_Host_Initialize_Params",
    profilerType=c_int,
    pChipName=c_char_p,
    pCounterAvailabilityImage=c_void_p,
    pHostObject=c_void_p,
)
HOST_DEINITIALIZE = _params("CUpti_Profiler_Host_Deinitialize_Params", pHostObject=c_void_p)
ADD_METRICS = _params(
    "CUpti_Profiler_Host_ConfigAddMetrics_Params",
    pHostObject=c_void_p,
    ppMetricNames=c_void_p,
    numMetrics=c_size_t,
)
CONFIG_IMAGE_SIZE = _params(
    "CUpti_Profiler_Host_GetConfigImageSize_Params", pHostObject=c_void_p, configImageSize=c_size_t
)
CONFIG_IMAGE = _params(
    "CUpti_Profiler_Host_GetConfigImage_Params",
    pHostObject=c_void_p,
    configImageSize=c_size_t,
    pConfigImage=c_void_p,
)
NUMBER_OF_PASSES = _params(
    "CUpti_Profiler_Host_GetNumOfPasses_Params",
    configImageSize=c_size_t,
    pConfigImage=c_void_p,
    numOfPasses=c_size_t,
)
EVALUATE = _params(
    "CUpti_Profiler_Host_EvaluateToGpuValues_Params",
    pHostObject=c_void_p,
    pCounterDataImage=c_void_p,
    counterDataImageSize=c_size_t,
    rangeIndex=c_size_t,
    ppMetricNames=c_void_p,
    numMetrics=c_size_t,
    pMetricValues=c_void_p,
)

ENABLE = _params("CUpti_RangeProfiler_Enable_Params", ctx=c_void_p, pRangeProfilerObject=c_void_p)
DISABLE = _params("CUpti_RangeProfiler_Disable_Params", pRangeProfilerObject=c_void_p)
COUNTER_DATA_SIZE = _params(
    "CUpti_RangeProfiler_GetCounterDataSize_Params",
    pRangeProfilerObject=c_void_p,
    pMetricNames=c_void_p,
    numMetrics=c_size_t,
    maxNumOfRanges=c_size_t,
    maxNumRangeTreeNodes=c_uint32,
    counterDataSize=c_size_t,
)
COUNTER_DATA_INITIALIZE = _params(
    "CUpti_RangeProfiler_CounterDataImage_Initialize_Params",
    pRangeProfilerObject=c_void_p,
    counterDataSize=c_size_t,
    pCounterData=c_void_p,
)
SET_CONFIG = _params(
    "CUpti_RangeProfiler_SetConfig_Params",
    pRangeProfilerObject=c_void_p,
    configSize=c_size_t,
    pConfig=c_void_p,
    counterDataImageSize=c_size_t,
    pCounterDataImage=c_void_p,
    range=c_int,
    replayMode=c_int,
    maxRangesPerPass=c_size_t,
    numNestingLevels=c_uint16,
    minNestingLevel=c_uint16,
    passIndex=c_size_t,
    targetNestingLevel=c_uint16,
)
START = _params("CUpti_RangeProfiler_Start_Params", pRangeProfilerObject=c_void_p)
STOP = _params(
    "CUpti_RangeProfiler_Stop_Params",
    pRangeProfilerObject=c_void_p,
    passIndex=c_size_t,
    targetNestingLevel=c_size_t,
    isAllPassSubmitted=c_uint8,
)
DECODE = _params("CUpti_RangeProfiler_DecodeData_Params", pRangeProfilerObject=c_void_p, numOfRangeDropped=c_size_t)
COUNTER_DATA_INFO = _params(
    "CUpti_RangeProfiler_GetCounterDataInfo_Params",
    pCounterDataImage=c_void_p,
    counterDataImageSize=c_size_t,
    numTotalRanges=c_size_t,
)
