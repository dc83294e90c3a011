"""Multi-model starts that do not get ready."""

from pathlib import Path

from support.archives import NEEDS_NGINX
from support.multi_model import MultiModelStack

pytestmark = NEEDS_NGINX


def test_a_shared_model_server_that_never_answers_ends_the_start(tmp_path: Path) -> None:
    """At the latest after the wait time, with what is missing."""
    program = tmp_path / "silent"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    limit = {"SAGEMAKER_TFS_WAIT_TIME_SECONDS": "5"}
    stack = MultiModelStack("--model-server", str(program), env=limit)
    try:
        status = stack.wait()
    finally:
        stack.close()

    assert status == 5
    missing = "starting: the model server of all models"
    assert f"not ready within SAGEMAKER_TFS_WAIT_TIME_SECONDS=5: {missing}." in stack.log
