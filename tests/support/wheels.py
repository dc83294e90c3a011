"""Makes wheels of one module for tests, so that installing them needs no network."""

import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path


def write_wheel(
    folder: Path,
    name: str,
    number: str,
    needs: str = "",
    claims: Iterable[str] = (),
    more: Mapping[str, str | bytes] | None = None,
) -> Path:
    """A wheel of a module with a ``VERSION`` and ``more`` files; its path. Its RECORD ``claims`` others, too."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{number}.dist-info"
    requires = f"Requires-Dist: {needs}\n" if needs else ""
    files: dict[str, str | bytes] = {
        f"{name}.py": f"VERSION = {number!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n{requires}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        **(more or {}),
    }
    files[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in [*files, *claims, f"{info}/RECORD"])
    path = folder / f"{name}-{number}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
    return path
