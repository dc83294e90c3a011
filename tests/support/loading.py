"""Programs that are in no package, of scripts/ and code_examples/, as modules that tests call."""

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def load_module(program: Path) -> ModuleType:
    """The file as a module, named after its folder and itself; it may import files beside it at its top."""
    name = f"{program.parent.name}_{program.stem}"
    loader = SourceFileLoader(name, str(program))  # whatever the file's name ends in
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(program.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(program.parent))
    return module


def load_script(name: str) -> ModuleType:
    """``name``.py of scripts/."""
    return load_module(ROOT / "scripts" / f"{name}.py")
