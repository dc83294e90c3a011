"""Lines of a model server's log that only tell how TensorFlow starts: they are shown at ``debug``."""

import re

START_UP = re.compile(
    r"I\d{4} \d\d:\d\d:"  # absl's form of a line that informs
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: I "  # TensorFlow's
    r"|WARNING: All log messages before absl::InitializeLog\(\) is called"
    r"|To enable the following instructions: "
    r"|.*Unable to register cu\w+ (factory|plugin)"  # logged by every TensorFlow that is built for GPUs
    r"|.*computation placer already registered"
    r"|\[warn\] getaddrinfo: address family for nodename not supported"
)


def is_start_up(line: str) -> bool:
    """Whether the line matters only if TensorFlow itself is broken."""
    return START_UP.match(line) is not None
