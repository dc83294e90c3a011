"""Stands in for the model server in gpu_check.py: takes its share of the GPU's memory by CUDA's driver.

It writes what it was given, and what each call answered (0 is success), into a file of the folder GPU_CHECK.
Then it is the stand-in of the tests.
"""

import ctypes
import json
import os
import runpy
import sys
from pathlib import Path

STAND_IN = Path(__file__).resolve().parents[1] / "tests" / "support" / "stand_ins" / "model_server.py"


def take(share: float) -> dict[str, object]:
    """CUDA's first GPU: its UUID, and the answers of the calls that take so much of its memory."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device, total, context, memory = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_void_p(), ctypes.c_uint64()
    uuid = (ctypes.c_ubyte * 16)()
    answers = [
        cuda.cuInit(0),
        cuda.cuDeviceGet(ctypes.byref(device), 0),
        cuda.cuDeviceGetUuid_v2(uuid, device),
        cuda.cuDeviceTotalMem_v2(ctypes.byref(total), device),
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
        cuda.cuCtxSetCurrent(context),
        cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(int(total.value * share))),
    ]
    return {"uuid": bytes(uuid).hex(), "answers": answers}


flags = dict(word.removeprefix("--").partition("=")[::2] for word in sys.argv[1:])
given = flags.get("per_process_gpu_memory_fraction")
said = {"share": given, "visible": os.environ.get("CUDA_VISIBLE_DEVICES")}
Path(os.environ["GPU_CHECK"], f"{os.getpid()}.json").write_text(
    json.dumps(said | (take(float(given)) if given else {}))
)
runpy.run_path(str(STAND_IN))
