"""What an opened archive serves: models for the model server, or a stage, whose script is the model."""

from dataclasses import dataclass
from pathlib import Path

from tfs_proxy.archive.discover import DiscoveredModel, default_model, discover
from tfs_proxy.errors import DiscoveryError, NoModelFound
from tfs_proxy.layout import ModelLayout
from tfs_proxy.script.load import HANDLERS, STAGE_FUNCTIONS
from tfs_proxy.script.outline import outline_of
from tfs_proxy.settings import Settings


@dataclass(frozen=True, slots=True)
class Served:
    """The folder and what is in it: ``models``, by name, or none of them in a stage."""

    layout: ModelLayout
    models: tuple[DiscoveredModel, ...]
    default_model: str

    @property
    def stage(self) -> str | None:
        """The folder that a stage's ``model_fn`` gets; None where there are models."""
        return None if self.models else str(self.layout.root)

    @property
    def script(self) -> str | None:
        """The path of the script, None without one."""
        return str(self.layout.script) if self.layout.script.is_file() else None

    @property
    def import_paths(self) -> tuple[str, ...]:
        """Folders that the script's imports may come from."""
        return tuple(str(path) for path in (self.layout.code, self.layout.lib) if path.is_dir())


def look_into(root: Path, settings: Settings) -> Served:
    """Find the models below ``root``; without one, a script with the functions of a stage will do.

    A SavedModel makes the archive one of models, whatever its script defines. Raises DiscoveryError where
    there is neither, and as `discover` does.
    """
    layout = ModelLayout(root).with_program(settings.program)
    try:
        models = discover(root)
    except NoModelFound as error:
        fault = _no_stage(layout)
        if fault:
            raise DiscoveryError(f"{error} {fault}") from error
        return Served(layout, (), "")
    return Served(layout, models, default_model(models, settings.default_model_name))


def _no_stage(layout: ModelLayout) -> str:
    """Why the script is no stage, as a sentence; "" where it is one."""
    path = layout.script.relative_to(layout.root)
    wanted = f"Without one, {path} must define model_fn(model_dir)"
    outline = outline_of(layout.script)
    if outline is None:
        return f"{wanted}, and there is no such file."
    if outline.fault:
        return f"{wanted}, but it {outline.fault}."
    if outline.defined(STAGE_FUNCTIONS) or outline.is_open:
        return ""
    handlers = outline.defined(HANDLERS)
    return f"{wanted}; its {handlers[0]} needs a SavedModel." if handlers else f"{wanted}, and it does not."
