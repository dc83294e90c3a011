"""The JSON schemas of the files that commands read; ``tfs-proxy --json-schema`` prints them for editors."""

SCHEMAS = ("standardize", "transform-job", "endpoint", "conform-requests")
"""For ``pack --standardize``, ``transform``, ``endpoint`` and ``conform --requests``."""


def schema_text(name: str) -> str:
    """One of `SCHEMAS`; ``make schemas`` writes it."""
    from importlib.resources import files  # PERF: `serve` must listen at once

    return (files("tfs_proxy") / "schemas" / f"{name}.json").read_text(encoding="utf-8")
