"""Memory that the embedded server keeps between requests."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource
from tfs_proxy.embedded.core.allocator import keep_freed_memory
assert keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def request():
    return [bytearray(6_000_000) for _ in range(3)]
request()
before = faults()
for _ in range(20):
    request()
print(faults() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's setting")
def test_freed_memory_serves_the_next_request() -> None:
    """A body of 6 MB with two copies needs no new pages of the kernel each time."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    pages = 3 * 6_000_000 // 4096
    assert int(done.stdout) < 2 * pages
