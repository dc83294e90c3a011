"""A script model that tells what its gunicorn is like, and whether that was forked or started."""

STARTED = ("tfs_proxy.worker.gunicorn_workers.master",)
OURS = "idna"
"""A package without further modules of its own that ours import, too, for a script that imports requests."""

TELLS = f"""
import gc
import json
import logging
import os
import random
import re
import sys
from pathlib import Path

import {OURS}
import requests


def model_fn(model_dir):
    return model_dir


def process(pid, names):
    lines = Path(f"/proc/{{pid}}/status").read_text().splitlines()
    status = {{name: value for name, _, value in (line.partition(":\\t") for line in lines)}}
    return {{name: status[name] for name in names}}


def kind(link):
    return re.sub(r"(?<=wgunicorn-)\\w+|\\d+", "N", os.path.basename(os.readlink(link)))


def transform_fn(model_dir, data, content_type, accept):
    of_run = str(Path(model_dir).parent)
    master = os.getppid()
    alike = {{
        "worker": process("self", ["Umask", "SigBlk", "SigIgn", "SigCgt"]),
        "master": process(master, ["Umask", "SigBlk", "SigIgn", "SigCgt", "Threads", "PPid"]),
        "files": sorted(kind(link) for link in Path(f"/proc/{{master}}/fd").iterdir()),
        "input": os.readlink(f"/proc/{{master}}/fd/0"),
        "same output": os.readlink(f"/proc/{{master}}/fd/1") == os.readlink(f"/proc/{{master}}/fd/2"),
        "leads": os.getpgid(0) == master,
        "cwd": os.getcwd(),
        "environment": {{name: value.replace(of_run, "RUN") for name, value in os.environ.items()}},
        "arguments": [re.sub(r"\\d+", "N", word) for word in sys.argv],
        "path": [path.replace(of_run, "RUN") for path in sys.path],
        "collects": gc.isenabled(),
        "log": [repr(type(handler)) for handler in logging.getLogger().handlers],
        "level": logging.getLogger().level,
    }}
    program = getattr(sys.modules["__main__"].__spec__, "name", None)
    own = {{
        "forked": program not in {STARTED!r},
        "master": master,
        "version": getattr({OURS}, "VERSION", None),
        "random": random.random(),
    }}
    return json.dumps({{"alike": alike, "own": own}}), "application/json"
"""
