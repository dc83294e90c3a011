"""Writes the names of all ops of TensorFlow and TensorFlow Text into src/tfs_proxy/model/known_ops.txt."""

from pathlib import Path

from tensorflow.core.framework.op_def_pb2 import OpList
from tensorflow.python.client import pywrap_tf_session

from tfs_proxy.embedded.tensorflow.session import provide

FILE = Path(__file__).parents[1] / "src" / "tfs_proxy" / "model" / "known_ops.txt"


def registered() -> list[str]:
    """Load the packages that are installed, and name all ops."""
    provide(["an op that no package has"])
    listed = OpList.FromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    return sorted(op.name for op in listed.op if not op.name.startswith("SimpleML"))


if __name__ == "__main__":
    FILE.write_text("\n".join(registered()) + "\n")
