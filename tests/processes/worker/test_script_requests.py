"""A script's `requests` use the worker's connections, wherever the script imports them."""

from pathlib import Path

import pytest

from support.archives import stand_in_words
from support.stack import serving

TELLS = """
    parent = open(f"/proc/{os.getppid()}/maps").read()
    answer = requests.post(context.rest_uri, data=data.read())
    return json.dumps({
        "status": answer.status_code,
        "is pooled": requests.api.request.__module__,
        "in the master": "charset_normalizer" in parent,
    }), "application/json"
"""
AT_TOP = f"import json, os\nimport requests\ndef handler(data, context):{TELLS}"
IN_HANDLER = f"import json, os\ndef handler(data, context):\n    import requests{TELLS}"
BY_OTHERS = f"import json, os\nfrom caller import requests_of\ndef handler(data, context):\n    requests = requests_of(){TELLS}"


@pytest.mark.parametrize(
    ("script", "in_master"),
    [
        (AT_TOP, True),
        (IN_HANDLER, True),
        (BY_OTHERS, False),
    ],
    ids=["at the top", "in the handler", "in another module"],
)
def test_requests_of_a_script_go_over_the_pool(tmp_path: Path, script: str, in_master: bool) -> None:
    """The master imports them for all workers if the script says that it needs them."""
    other = "def requests_of():\n    import requests\n    return requests\n"
    with serving(*stand_in_words(tmp_path, script, **{"code/caller.py": other})) as stack:
        answer = stack.invoke('{"instances": [1]}').json

    assert answer == {
        "status": 200,
        "is pooled": "tfs_proxy.serving.upstream.pooled_requests",
        "in the master": in_master,
    }
