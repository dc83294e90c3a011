"""Compiles schema/*.proto into messages.binpb and the type stubs beside them: ``make protos``.

A tool of the developers, run by its path: ``python src/tfs_proxy/protos/compile.py``. It needs
grpcio-tools, and ruff to lay the stubs out.
"""

import subprocess
import sys
from importlib.resources import files
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2]
SCHEMA = Path("tfs_proxy/protos/schema")
STUB_HEAD = (
    "# ruff: noqa: A002, E501, I001, RUF023, UP007, UP045\n"
    '# mypy: disable-error-code="type-arg"\n'
    "# Made by tfs_proxy.protos.compile from the .proto file of the same name.\n"
)


def main() -> int:
    """Write the descriptor set and the stubs; returns protoc's exit status."""
    from grpc_tools import protoc  # type: ignore[import-untyped]

    names = sorted(str(path.relative_to(SOURCES)) for path in (SOURCES / SCHEMA).glob("*.proto"))
    status = protoc.main(
        [
            "protoc",
            f"--proto_path={SOURCES}",
            f"--proto_path={files('grpc_tools') / '_proto'}",
            f"--descriptor_set_out={SOURCES / SCHEMA.parent / 'messages.binpb'}",
            "--include_imports",
            f"--pyi_out={SOURCES}",
            *names,
        ]
    )
    stubs = sorted((SOURCES / SCHEMA).glob("*_pb2.pyi"))
    for stub in stubs:
        stub.write_text(STUB_HEAD + stub.read_text())
    for tidy in (["check", "--fix"], ["format"]):
        subprocess.run([sys.executable, "-m", "ruff", *tidy, "--quiet", *map(str, stubs)], check=True)
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
