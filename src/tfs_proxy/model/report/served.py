"""Contents of an opened archive: models for the model server, or a script that is the model itself."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from tfs_proxy.model import script_syntax
from tfs_proxy.model.discover import ROOT_MODEL_NAME, DiscoveredModel, default_model, discover
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values import names
from tfs_proxy.values.deployment import BY_MODEL, BY_SCRIPT, OFF, BodyLimits, Doors
from tfs_proxy.values.errors import DiscoveryError, NoModelFound, ScriptLoadError
from tfs_proxy.values.layout import ModelLayout, recorded_columns
from tfs_proxy.values.signature import Signature, TensorSpec

FLOATS = frozenset({"DT_HALF", "DT_BFLOAT16", "DT_FLOAT", "DT_DOUBLE"})


SAMPLE_TEXT = "a"


def sample_inputs(signature: Signature, string: Any = SAMPLE_TEXT) -> Mapping[str, Any]:
    """Write one record in TF Serving's JSON, in which every string is ``string``.

    Rows if all inputs have the same number of records and all outputs have some, else columns.
    """
    specs = signature.inputs
    values = {name: sample_value(sample_sizes(spec), spec.dtype, string) for name, spec in specs.items()}
    records = {sample_sizes(spec)[:1] for spec in specs.values()}
    if not answers_in_rows(signature) or len(records) != 1 or records == {()}:
        return {"inputs": _only(values)}
    rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    return {"instances": [_only(row) for row in rows]}


def answers_in_rows(signature: Signature) -> bool:
    """True if every output can have a value for each record, judging by its shape."""
    return all(spec.shape != () for spec in signature.outputs.values())


def sample_sizes(spec: TensorSpec) -> tuple[int, ...]:
    """Shape of a sample: unknown sizes are 1, an unknown rank is a vector."""
    shape = (None,) if spec.shape is None else spec.shape
    return tuple(1 if size is None else size for size in shape)


def sample_value(sizes: Sequence[int], dtype: str, string: Any = SAMPLE_TEXT) -> Any:
    """Make nested lists of these sizes, with a value of TensorFlow's type ``dtype``."""
    if sizes:
        return [sample_value(sizes[1:], dtype, string)] * sizes[0]
    if dtype == "DT_STRING":
        return string
    if dtype == "DT_BOOL":
        return True
    return 1.0 if dtype in FLOATS else 1


def _only(named: Mapping[str, Any]) -> Any:
    return next(iter(named.values())) if len(named) == 1 else named


class Served(Struct, frozen=True):
    """Opened folder and its ``models`` by name; a script model has none, and is the ``default_model`` itself.

    ``inner_names`` are other names of models that only requests for this archive may use.
    """

    layout: ModelLayout
    models: tuple[DiscoveredModel, ...]
    default_model: str
    inner_names: Mapping[str, str] = field(default_factory=dict)

    @property
    def script_model(self) -> str | None:
        """Folder that a script model's ``model_fn`` gets; None if there are models."""
        return None if self.models else str(self.layout.root)

    @property
    def script(self) -> str | None:
        return str(self.layout.script) if self.layout.script.is_file() else None

    @property
    def graph_folders(self) -> Mapping[str, str]:
        return {
            model.name: str(model.versions[max(model.versions)]) for model in self.models if model.versions
        }

    def csv_columns(self, settings: Settings) -> Mapping[str, str]:
        """Column order of CSV without a header, by model: from the settings, else from `pack`."""
        folders = self.graph_folders
        orders = {
            model.name: settings.csv_columns or recorded_columns(folders.get(model.name))
            for model in self.models
        }
        orders |= {inner: orders.get(name) for inner, name in self.inner_names.items()}
        return {name: order for name, order in orders.items() if order}

    @property
    def import_paths(self) -> tuple[str, ...]:
        """Folders from which the script may import."""
        return tuple(str(path) for path in (self.layout.code, self.layout.lib) if path.is_dir())


def body_limits(script: str | None, settings: Settings) -> BodyLimits:
    """Limits of bodies; none for those that ``script`` reads in parts, if the settings give none."""
    ast_names = None if script is None else script_syntax.read_ast_names(Path(script))
    return BodyLimits(
        settings.max_payload_bytes,
        settings.max_decoded_bytes,
        settings.max_payload_mb == 0 and ast_names is not None and script_syntax.reads_in_parts(ast_names),
    )


def doors_of(script: str | None, script_model: str | None, settings: Settings) -> Doors:
    """Paths that are open; a script model has no model behind it, and so answers ``/v2`` itself."""
    answerer = settings.open_inference
    if answerer != OFF:
        by_script = script_model is not None or (answerer == BY_SCRIPT and script is not None)
        answerer = BY_SCRIPT if by_script else BY_MODEL
    return Doors(settings.rest_api, answerer, settings.console)


def look_into(root: Path, settings: Settings) -> Served:
    """Finds the models below ``root``; without any, the script must be a script model.

    If there is a SavedModel, the script's functions don't matter. Raises DiscoveryError if there is neither,
    ScriptLoadError if there is only a script and it is not valid Python, and the errors of `discover`.
    """
    layout = ModelLayout(root).with_program(settings.program)
    if not layout.script.is_file() and settings.universal_code is not None:
        layout = ModelLayout(root, settings.program, Path(settings.universal_code))
    try:
        models = discover(root)
    except NoModelFound as error:
        _refuse_unless_script_model(layout, error)
        return Served(layout, (), settings.loaded_as or settings.model_name or ROOT_MODEL_NAME)
    if settings.loaded_as is not None:
        return _loaded_as(settings.loaded_as, layout, models)
    if settings.model_name and len(models) == 1:
        models = (replace(models[0], name=settings.model_name),)
    return Served(layout, models, default_model(models, settings.default_model_name))


def _loaded_as(name: str, layout: ModelLayout, models: Sequence[DiscoveredModel]) -> Served:
    """Give the models of one of many archives unique names, ``name`` or ``name.INNER``."""
    default = default_model(models, None)
    new_names = {
        model.name: name if len(models) == 1 else f"{name}{names.INNER}{model.name}" for model in models
    }
    for new_name in new_names.values():
        if not names.is_model_name(new_name, names.SERVED_MODEL):
            raise DiscoveryError(
                f"{new_name} can't be a model's name: it must have at most {names.MOST_SERVED_CHARACTERS} "
                "letters, digits, '.', '_' and '-', and begin with a letter or a digit."
            )
    renamed = tuple(replace(model, name=new_names[model.name]) for model in models)
    return Served(layout, renamed, new_names[default], new_names)


def _refuse_unless_script_model(layout: ModelLayout, why: NoModelFound) -> None:
    """Raises ``why`` unless the script can be the model."""
    path = layout.shown_script
    wanted = f"{why} Without one, {path} must define {script_syntax.form_of('model_fn')}"
    ast_names = script_syntax.read_ast_names(layout.script)
    if ast_names is None:
        raise DiscoveryError(f"{wanted}, and there is no such file.") from why
    if ast_names.fault:
        raise ScriptLoadError(f"{wanted}, but it {ast_names.fault}.") from why
    handlers = ast_names.defined(script_syntax.HANDLERS)
    if ast_names.defined(script_syntax.SCRIPT_MODEL_FUNCTIONS) or (ast_names.is_open and not handlers):
        return
    if handlers:
        raise DiscoveryError(f"{wanted}; its {handlers[0]} needs a SavedModel.") from why
    meant = script_syntax.misspelt(script_syntax.SCRIPT_MODEL_FUNCTIONS, ast_names.functions)
    hints = [f" It defines {written}: did you mean {name}?" for written, name in meant.items()]
    raise DiscoveryError(f"{wanted}, and it does not.{''.join(hints[:1])}") from why
