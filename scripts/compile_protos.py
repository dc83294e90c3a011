"""Compiles src/tfs_proxy/wire/protos/schema/*.proto into messages.binpb and type stubs: ``make protos``.

It needs grpcio-tools, and ruff to lay the stubs out.
"""

import subprocess
import sys
from importlib.resources import files
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "src"
SCHEMA = Path("tfs_proxy/wire/protos/schema")
STUB_HEAD = (
    "# ruff: noqa: A002, E501, I001, RUF023, UP007, UP045\n"
    '# mypy: disable-error-code="type-arg"\n'
    "# Made by scripts/compile_protos.py from the .proto file of the same name.\n"
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
