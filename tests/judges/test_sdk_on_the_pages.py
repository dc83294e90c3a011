"""The program of the pages for SageMaker's SDK, unchanged, where `tfs-proxy endpoint` has started empty."""

import re
from pathlib import Path

from support.endpoints import Endpoint
from support.judges import ROOT, judge
from support.multi_model import saying, script_model

PAGE = ROOT / "docs" / "how-to" / "sagemaker.md"


def test_the_program_of_the_page_makes_an_endpoint_and_asks_it(tmp_path: Path) -> None:
    (text,) = re.findall(
        r'^```python title="deploy_sdk.py"\n(.*?)^```$', PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    (tmp_path / "deploy_sdk.py").write_text(text)
    archive = script_model(tmp_path / "model.tar.gz", saying("hello"))
    endpoint = Endpoint()
    try:
        endpoint.wait_ready()
        address = f"http://{endpoint.host}:{endpoint.port}"
        places = {f"AWS_ENDPOINT_URL_SAGEMAKER{service}": address for service in ("", "_RUNTIME")}
        keys = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_DEFAULT_REGION": "us-east-1"}
        printed = judge("sagemaker3").run(
            "python", tmp_path / "deploy_sdk.py", "tfs-proxy:cpu", archive, env={**places, **keys}
        )
    finally:
        endpoint.close()

    assert "b'hello" in printed
