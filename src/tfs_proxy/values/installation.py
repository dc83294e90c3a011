"""The command that installs extras beside this copy of the package, by the records that installers leave."""

import json
import shlex
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

NAME = "tfs-proxy"


def how_to_install(extra: str, installed: Distribution | None = None) -> str:
    """Command that installs an extra's packages for the copy that runs, or for one that is ``installed``.

    It names the clone or the wheel that the copy came from, as installers record it (direct_url.json,
    PEP 610). A copy without that record came from an index, and one whose source has gone names the wheel.
    """
    try:
        installed = installed or distribution(NAME)
    except PackageNotFoundError:  # it runs from its source, by PYTHONPATH
        return f"pip install {_quoted('.', extra)} in a clone"
    install = "uv pip install" if (installed.read_text("INSTALLER") or "").strip() == "uv" else "pip install"
    record = installed.read_text("direct_url.json")
    if record is None:
        return f"{install} {_quoted(NAME, extra, f'=={installed.version}')}"
    source = json.loads(record)
    address = str(source.get("url", ""))
    if "vcs_info" in source:
        commit = source["vcs_info"].get("commit_id", "")
        return f"{install} {_quoted(NAME, extra, f' @ git+{address}@{commit}')}"
    path = Path(unquote(urlsplit(address).path)) if address.startswith("file:") else None
    if path is None:
        return f"{install} {_quoted(NAME, extra, f' @ {address}')}"
    if not path.exists():
        return f"{install} {_quoted(f'tfs_proxy-{installed.version}-py3-none-any.whl', extra)}"
    editable = "-e " if source.get("dir_info", {}).get("editable") else ""
    return f"{install} {editable}{_quoted(str(path), extra)}"


def _quoted(source: str, extra: str, version: str = "") -> str:
    """``source[extra]`` for a shell, in which brackets would be a pattern."""
    return shlex.quote(f"{source}[{extra}]{version}")
