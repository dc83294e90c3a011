"""The embedded server keeps no memory of models gone."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tensorflow


CYCLES = """
import sys
from pathlib import Path
import numpy as np
from tfs_proxy.embedded.flags import ModelServerFlags
from tfs_proxy.embedded.loader import Loader
from tfs_proxy.embedded.core.metrics import Metrics

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])

load = Loader(ModelServerFlags(), Metrics())
sizes = []
for _ in range(1000):
    servable = load("m", 1, Path(sys.argv[1]))
    signature = servable.signatures["serving_default"]
    servable.runner(signature, tuple(signature.outputs)).run({"x": np.ones(1, np.float32)})
    servable.retire()
    sizes.append(resident())
print(max(sizes[-100:]) / sizes[50])
"""


@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.slow
def test_models_that_went_leave_no_memory_behind(saved_models: Path) -> None:
    argv = [sys.executable, "-c", CYCLES, str(saved_models / "half_plus_two" / "1")]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    assert float(done.stdout) < 1.1
