"""Ports that a container has: what others have on the same machine is never taken for its own."""

import os
import sys

import pytest

from tfs_proxy.tools.conform.targets import namespace_ports

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc/PID/ns")


def test_a_network_that_others_share_says_nothing() -> None:
    assert namespace_ports(os.getpid()) is None
    assert namespace_ports(2**22 + 1) is None
