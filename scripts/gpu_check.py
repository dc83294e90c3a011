"""Tries what reads a GPU, without TensorFlow and network, and prints a table within five minutes.

    make gpu-check-wheels             # build/gpu-check: our wheel and what it needs there, below 64 MB
    python3.12 scripts/gpu_check.py   # there, in a copy of the tree with that folder; nothing is installed
    make gpu-check                    # here, with what .venv has

gpu_server.py stands in for the model server. The status is 1 if something is not as expected.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
CONTAINER, CARRIED, COMPAT = ROOT / "container", ROOT / "build" / "gpu-check", Path("/usr/local/cuda/compat")
WITH_COMPAT = ("sh", CONTAINER / "with-cuda-compat")
LIMIT_SECONDS, READY_SECONDS, NO_GPU = 290, 60, "nvidia-smi shows no GPU"
MEGABYTE, RESERVED_MEGABYTES = 2**20, 2048  # the driver's own, which only one of its two doors counts
EMPTY_MODEL = b"\x12\x09\x0a\x07\x22\x05serve"  # a SavedModel of one graph with that tag
QUESTION = "index,uuid,name,memory.total,memory.used,mig.mode.current"


class Row(NamedTuple):
    """A line of the table; ``why`` says why it could not be tried."""

    what: str
    expected: object
    found: object
    why: str = ""

    @property
    def result(self) -> str:
        found = "ok" if self.expected == self.found else "NOT AS EXPECTED"
        return f"could not try: {self.why}" if self.why else found


class Card(NamedTuple):
    """A GPU as ``nvidia-smi --query-gpu`` tells it, which the product does not ask."""

    index: str
    uuid: str
    name: str
    total: str
    used: str
    mig: str


def output(*words: str | Path, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Status and output of a program, errors included; 127 if there is none."""
    try:
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError as error:
        return 127, str(error)
    return done.returncode, f"{done.stderr}{done.stdout}".strip()


def cards() -> list[Card]:
    """The machine's GPUs; empty without a driver."""
    status, lines = output("nvidia-smi", f"--query-gpu={QUESTION}", "--format=csv,noheader,nounits")
    return [] if status else [Card(*map(str.strip, line.split(","))) for line in lines.splitlines()]


def near(found: float, megabytes: int) -> bool:
    return abs(found / MEGABYTE - megabytes) <= RESERVED_MEGABYTES


def listing(gpus: list[Card]) -> Iterator[Row]:
    """The product's list of devices, beside another answer of the driver."""
    from tfs_proxy.run.gpus import count_gpus, visible_devices

    found, slices = visible_devices({}), re.findall(r"UUID: (MIG-[^)]+)", output("nvidia-smi", "-L")[1])
    whole = [card.uuid for card in gpus if card.mig != "Enabled"]
    uuids = list(found)
    yield Row("number of GPUs", len(gpus), count_gpus())
    yield Row("GPUs for model servers", whole, [uuid for uuid in uuids if uuid.startswith("GPU-")])
    why = "" if slices else "no GPU is divided (MIG)"
    yield Row("slices for model servers", slices, [uuid for uuid in uuids if uuid.startswith("MIG-")], why)
    for entry, expected in {"-1": [], **{uuid: [uuid] for uuid in uuids}}.items():
        chosen = visible_devices({"CUDA_VISIBLE_DEVICES": entry})
        yield Row(f"CUDA_VISIBLE_DEVICES={entry}", expected, list(chosen))


def asked(url: str) -> str | None:
    """What is answered there; None without an answer, or with an error."""
    with suppress(OSError), urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - the run's own
        return str(answer.read().decode())
    return None


def running(gpus: list[Card]) -> Iterator[Row]:
    """A run with two stand-ins for the model server on each device: its metrics, and what they were given."""
    from tfs_proxy.run.gpus import visible_devices

    devices = list(visible_devices(os.environ))
    servers = max(2 * len(devices), 2)
    with tempfile.TemporaryDirectory() as name:
        (version := (folder := Path(name)) / "model" / "1").mkdir(parents=True)
        (version / "saved_model.pb").write_bytes(EMPTY_MODEL)
        program = folder / "tensorflow_model_server"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ROOT}/scripts/gpu_server.py" "$@"\n')
        program.chmod(0o755)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
        url = f"http://127.0.0.1:{port}"
        words = ["-m", "tfs_proxy", "serve", folder / "model", "--model-server", program, "--port", port]
        env = {**os.environ, "GPU_CHECK": name, "SAGEMAKER_TFS_INSTANCE_COUNT": str(servers)}
        with (folder / "log").open("wb") as log:
            run = subprocess.Popen([sys.executable, *words], env=env, stderr=log)
        deadline = time.monotonic() + READY_SECONDS
        try:
            while asked(f"{url}/ping") is None and time.monotonic() < deadline:
                time.sleep(0.2)
            asked(f"{url}/metrics")
            time.sleep(1)  # a scrape may show what the driver said before it
            text = asked(f"{url}/metrics")
        finally:
            run.terminate()
            status = run.wait(READY_SECONDS)
        logged = (folder / "log").read_text()
        if text is None:
            raise RuntimeError(f"the run does not serve: {logged[-300:]}")
        yield from metrics(gpus, text)
        yield from shares(devices, [json.loads(file.read_text()) for file in folder.glob("*.json")], servers)
        yield Row("GPUs in the log", set(devices), set(re.findall(r"model server \d+: on (\S+)", logged)))
        yield Row("exit status of the run", 0, status)


def metrics(gpus: list[Card], text: str) -> Iterator[Row]:
    """NVML's figures beside those of nvidia-smi, of before and after the stand-ins took their memory."""
    lines = re.findall(r'^(hw_gpu_\w+)\{hw_id="(.*)",hw_name="(.*)"\} (\S+)$', text, re.MULTILINE)
    figures = {(metric, index): float(value) for metric, index, _, value in lines}
    yield Row("/metrics: GPUs", {card.index: card.name for card in gpus}, {row[1]: row[2] for row in lines})
    for card in gpus:
        limit, used, busy = (
            figures.get((f"hw_gpu_{name}", card.index), -1.0)
            for name in ("memory_limit_bytes", "memory_usage_bytes", "utilization_ratio")
        )
        yield Row(f"/metrics: memory of {card.index}", True, near(limit, int(card.total)))
        why = "a divided GPU has none as a whole" if card.mig == "Enabled" else ""
        yield Row(f"/metrics: 0.8 of {card.index} in use", True, used >= 0.75 * limit, why)
        yield Row(f"/metrics: utilization of {card.index}", True, 0 <= busy <= 1, why)


def shares(devices: list[str], said: list[dict[str, str]], servers: int) -> Iterator[Row]:
    """The device and the share of its memory that each stand-in was given, and what CUDA made of them."""
    given = Counter((one["visible"], one["share"]) for one in said)
    none = Counter({(os.environ.get("CUDA_VISIBLE_DEVICES"), None): servers})
    yield Row("without a GPU: no share for any", none, given, "there is one" if devices else "")
    why = "" if devices else NO_GPU
    yield Row("two on each device, 0.4 each", Counter([(uuid, "0.4000") for uuid in devices] * 2), given, why)
    wanted = Counter(uuid.partition("-")[2].replace("-", "") for uuid in devices * 2)
    yield Row("the device that CUDA shows", wanted, Counter(one.get("uuid") for one in said), why)
    answers = {str(one.get("answers")) for one in said}
    yield Row("CUDA's answers, all servers at once", {str([0] * 7)}, answers, why)


def libraries() -> Iterator[Row]:
    """The answer of check-cuda beside the dynamic linker's."""
    script = CONTAINER / "check-cuda"
    env = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    env["PATH"] += ":/usr/sbin:/sbin"
    load = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    names = re.findall(r"lib\w+\.so\.\d+", script.read_text().partition("for library in ")[2])
    missing = next((name for name in names if output(sys.executable, "-c", load, name, env=env)[0]), None)
    expected = (1, f"check-cuda: {missing} is missing in the base image") if missing else (0, "")
    yield Row("check-cuda: CUDA 12, cuDNN 9", expected, output("sh", script, sys.executable, env=env))
    yield Row("check-cuda: what is linked", "", "", "needs tensorflow_model_server, built for CUDA")


def compatibility(gpus: list[Card]) -> Iterator[Row]:
    """The answer of with-cuda-compat, and what cuInit then says."""
    link, version = COMPAT / "libcuda.so.1", Path("/proc/driver/nvidia/version")
    needs = link.readlink().name.partition(".so.")[2] if link.is_symlink() else ""
    module = version.read_text() if version.exists() else ""
    has = "".join(re.findall(r"Kernel Module(?: for \S+)? +([\d.]+)", module))
    is_older = bool(needs and has) and [*map(int, has.split("."))] < [*map(int, needs.split("."))]
    initialize = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
    own = os.environ.get("LD_LIBRARY_PATH", "/own")
    first, alone = ({**os.environ, "LD_LIBRARY_PATH": path} for path in (f"{COMPAT}:{own}", own))
    answer = output(sys.executable, "-c", initialize, env=first)[1]
    fits = is_older and answer.isdecimal() and answer not in {"803", "804"}
    path = output(*WITH_COMPAT, "printenv", "LD_LIBRARY_PATH", env=alone)[1].splitlines()[-1]
    yield Row("with-cuda-compat", (first if fits else alone)["LD_LIBRARY_PATH"], path)
    said = output(*WITH_COMPAT, sys.executable, "-c", initialize, env=alone)[1].rpartition("\n")[2]
    yield Row("cuInit with it", "0", said, "" if gpus else NO_GPU)
    why = "" if is_older else f"libraries {needs or 'none'}, driver {has or 'none'}: none is older"
    told = "is older than" in output(*WITH_COMPAT, "true", env=alone)[1]
    yield Row("with-cuda-compat: an older driver", True, told, why)
    yield Row("with-cuda-compat: the program's status", 7, output(*WITH_COMPAT, "sh", "-c", "exit 7")[0])


def tried() -> Iterator[Row]:
    """All rows; what fails is a row, and the rest goes on."""
    gpus = cards()
    for part in (listing(gpus), running(gpus), libraries(), compatibility(gpus)):
        try:
            yield from part
        except Exception as error:  # noqa: BLE001 - the table has it
            yield Row(part.__name__, "no error", f"{type(error).__name__}: {error}")
    for what in ("a model's answers, batches and rate", "a GPU without room for a model"):
        yield Row(what, "", "", "needs TensorFlow on a GPU")
    yield Row("the image tfs-proxy:gpu", "", "", "needs a container engine with NVIDIA's toolkit")


def main() -> int:
    """Print the table; 1 if something is not as expected."""
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(LIMIT_SECONDS)
    counts = Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        if find_spec("tfs_proxy") is None:
            for wheel in CARRIED.glob("*.whl"):
                zipfile.ZipFile(wheel).extractall(folder)
            sys.path.insert(0, folder)
            os.environ["PYTHONPATH"] = folder
        print("what | expected | found | result")
        for row in tried():
            shown = ("", "") if row.why else (row.expected, row.found)
            print(row.what, *shown, row.result, sep=" | ", flush=True)
            counts[row.result.partition(":")[0]] += 1
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return int(counts["NOT AS EXPECTED"] > 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(f"gpu_check: it was ended, after {LIMIT_SECONDS} s at the latest")
