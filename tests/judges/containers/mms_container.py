"""A container of AWS's own serving toolkit: sagemaker-inference starts multi-model-server, JSON in and JSON out.

``python mms_container.py PORT FOLDER``; FOLDER takes what the toolkit writes below /etc and /opt/ml in an image.
"""

import os
import sys
from pathlib import Path

port, folder = sys.argv[1], Path(sys.argv[2])
SCRIPT = """
def model_fn(model_dir):
    return 2.0


def predict_fn(data, model):
    return data * model
"""
(folder / "model" / "code").mkdir(parents=True, exist_ok=True)
(folder / "model" / "code" / "inference.py").write_text(SCRIPT)
os.chdir(folder)  # multi-model-server writes its logs here
os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
os.environ |= {
    "SAGEMAKER_BASE_DIR": str(folder),
    "SAGEMAKER_BIND_TO_PORT": port,
    "SAGEMAKER_PROGRAM": "inference.py",
    "SAGEMAKER_MODEL_SERVER_WORKERS": "2",
}

from sagemaker_inference import model_server  # noqa: E402 - it reads the environment as it is imported

model_server.MMS_CONFIG_FILE = str(folder / "mms.properties")
model_server.start_model_server()
