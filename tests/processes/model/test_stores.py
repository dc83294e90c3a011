"""An archive at an ``https://`` address: read by ranges, again after a break, and of one version only."""

import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from support.certificates import Authority
from support.http_servers import Quiet, listening
from tfs_proxy.model import stores
from tfs_proxy.model.stores import download, is_remote
from tfs_proxy.values.errors import ArchiveError

CONTENT = bytes(range(256)) * 10_000


class Files(Quiet):
    """One file for those who have signed; the first read of its second part breaks off."""

    asked: ClassVar[list[str]] = []
    breaks: ClassVar[int] = 1
    changes: ClassVar[bool] = False
    takes_ranges: ClassVar[bool] = True
    grows: ClassVar[bool] = False

    def do_GET(self) -> None:  # noqa: N802 - as http.server has it
        path, _, query = self.path.partition("?")
        if path != "/models/my%20model.tar.gz" or query != "sig=a%2Fb":
            self.send_error(404 if query else 403)
            return
        header = self.headers.get("Range") or ""
        type(self).asked.append(header)
        part, found = CONTENT, re.fullmatch(r"bytes=(\d+)-(\d+)", header)
        if found and self.takes_ranges:
            begin, end = map(int, found.groups())
            part = CONTENT[begin : end + 1]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{begin + len(part) - 1}/{len(CONTENT)}")
        else:
            self.send_response(200)
        if self.grows and len(self.asked) > 1:
            part += CONTENT
        self.send_header("ETag", f'"{len(self.asked)}"' if self.changes else '"same"')
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if header and "bytes=0-" not in header and self.breaks:
            type(self).breaks -= 1
            self.wfile.write(part[:1000])
            self.close_connection = True
        else:
            self.wfile.write(part)


@contextmanager
def _serving(key: Path) -> Iterator[int]:
    """The port of the files, with the certificate beside ``key``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(key.with_suffix(".crt"), key)
    with listening(Files) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        yield server.server_port


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    monkeypatch.setattr(stores, "PART_BYTES", 1_000_000)
    monkeypatch.setattr(Files, "asked", [])
    with _serving(authority.sign("server")) as port:
        yield f"https://localhost:{port}/models/my%20model.tar.gz?sig=a%2Fb"


def test_a_broken_read_resumes(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Part by part, of a signed address; what had come is not asked for again."""
    monkeypatch.setattr(Files, "breaks", 1)
    path = download(address, tmp_path / "folder")
    assert path.read_bytes() == CONTENT
    assert Files.asked.count("bytes=0-999999") == 1


def test_a_server_without_ranges(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Files, "takes_ranges", False)
    assert download(address, tmp_path / "folder").read_bytes() == CONTENT


@pytest.mark.parametrize("way", ["grows", "changes"])
@pytest.mark.parametrize("takes_ranges", [True, False])
def test_more_than_was_announced_or_another_version(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, takes_ranges: bool
) -> None:
    """Nothing of it stays, with ranges and without."""
    monkeypatch.setattr(Files, "takes_ranges", takes_ranges)
    monkeypatch.setattr(Files, way, True)
    with pytest.raises(ArchiveError, match="has changed while it was downloaded"):
        download(address, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize(
    ("server", "sentence"),
    [
        ("https://localhost:{port}", "set SSL_CERT_FILE to a PEM file of CAs"),
        ("https://127.0.0.2:{port}", "nothing listens at this host and port"),
        ("https://unknown.invalid", "there is no host of this name"),
    ],
)
def test_a_store_that_can_not_be_reached(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str, sentence: str
) -> None:
    """The cause and its remedy; user and password of the address are not shown."""
    monkeypatch.setenv("SSL_CERT_FILE", str(Authority(tmp_path, "another").path))
    base = server.format(port=address.split(":")[2].partition("/")[0])
    with pytest.raises(ArchiveError, match=f"{base}/m.tar.gz can't be read: .*{sentence}") as caught:
        download(f"{base.replace('//', '//ann:se@cret@')}/m.tar.gz?sig=1", tmp_path / "folder")
    assert "cret" not in str(caught.value)


def test_a_server_with_the_certificate_of_a_ca(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `openssl req -x509` makes one: it is refused as what it is, trusted or not."""
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    sentence = "its certificate is a CA's own.*basicConstraints=critical,CA:FALSE.*SSL_CERT_FILE"
    with _serving(authority.sign("server", is_ca=True)) as port, pytest.raises(ArchiveError, match=sentence):
        download(f"https://localhost:{port}/m.tar.gz", tmp_path / "folder")


def test_what_is_refused(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sentence that has no signature in it, and nothing stays behind."""
    monkeypatch.setattr(Files, "changes", True)
    folder = address.rpartition("/")[0]
    for asked, sentence in (
        (address, "has changed while it was downloaded"),
        (address.partition("?")[0], "can't be used with these credentials, or none: take an address"),
        (f"{folder}/none.tar.gz?sig=1", f"There is no {folder}/none.tar.gz: check"),
        (f"{folder}/", "over HTTPS, give a model.tar.gz"),
    ):
        with pytest.raises(ArchiveError) as caught:
            download(asked, tmp_path / "folder")
        assert sentence in str(caught.value)
        assert "sig=" not in str(caught.value)
        assert not (tmp_path / "folder").exists()
    monkeypatch.setattr("tfs_proxy.model.s3.MAX_ARCHIVE_BYTES", 99)
    with pytest.raises(ArchiveError, match="2560000 bytes, over 99"):
        download(address, tmp_path / "folder")


def test_addresses_are_no_paths() -> None:
    assert all(map(is_remote, ("s3://b/k", "gs://b/k", "az://c/k", "https://h/k", "http://h/k")))
    assert not any(map(is_remote, ("/gs:/b", "gs", "file:///k", "model.tar.gz")))
