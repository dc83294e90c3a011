"""Report on a run in plain language, for start-up and ``tfs-proxy check``.

It runs nothing: it reads the files of SavedModels and the syntax of the script.
"""

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from tfs_proxy.data.formats.framing import tfrecords
from tfs_proxy.model.discover import DiscoveredModel
from tfs_proxy.model.graph_ops import (
    calls_python,
    misses_variables,
    rare_ops,
    unknown_ops,
    unsteady_parts,
)
from tfs_proxy.model.report.script import report_on_script, words_joined
from tfs_proxy.model.report.served import Served
from tfs_proxy.model.report.serving_flags import capacity
from tfs_proxy.model.saved_model import SavedModelSummary, read_saved_model
from tfs_proxy.settings.rows import GONE, unknown_variables
from tfs_proxy.settings.settings import SERVING_VARIABLES, TABLE, Settings
from tfs_proxy.values.errors import BadInput, PayloadTooLarge
from tfs_proxy.values.layout import WARMUP_FILE, ModelLayout
from tfs_proxy.values.names import USER_IN_URL, are_names_of, printable, similar
from tfs_proxy.values.signature import DEFAULT_SIGNATURE, Signature, TensorSpec

MODELS_SHOWN = 6
SIGNATURES_SHOWN = 3
TENSORS_SHOWN = 6
NOTES_SHOWN = 8
NAMES_SHOWN = 5
BELOW_ROOT = ModelLayout(Path())
SECRET_NAME = re.compile(r"KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL", re.IGNORECASE)
SECRET_PAIR = re.compile(r"([\w-]*(?:key|secret|token|password|signature)[\w-]*=)[^\s&]+", re.IGNORECASE)


class ModelReport(Struct, frozen=True):
    """One model: its versions, ascending, and the newest one's signatures; None if they can't be read."""

    name: str
    versions: tuple[int, ...]
    signatures: Mapping[str, Signature] | None


class Report(Struct, frozen=True):
    """Report on an archive's contents."""

    root: Path
    """Folder of the contents."""

    models: tuple[ModelReport, ...]
    """Models in the order of their names."""

    default_model: str
    """Name of the model for requests that name none."""

    default_reason: str
    """Reason why it is that one, as a phrase."""

    script: str
    """Description of the script in a few words."""

    processes: str
    """Number of processes and threads, as a phrase; "" if another report has told it."""

    settings: Mapping[str, str]
    """Text of the settings that are not the defaults, by variable; secrets are hidden."""

    notes: tuple[str, ...]
    """Sentences about files and settings that are ignored."""

    warnings: tuple[str, ...] = ()
    """Sentences about usable models and scripts that won't do what the user meant."""

    load_faults: tuple[str, ...] = ()
    """Those of the ``model_faults`` that are about models that don't load."""

    model_faults: tuple[str, ...] = ()
    """Those of the ``warnings`` that are about models that can answer no request."""

    script_fault: str | None = None
    """Sentence that says why the script can't be used; None if it can."""

    def lines(self) -> Iterator[str]:
        """Write the report as text of about a screen, without `warning_lines`."""
        yield f"Serving from {printable(str(self.root))}"
        yield from (printable(line) for line in self._lines())

    def one_line(self) -> str:
        """Describe only models and script, for a list of many archives."""
        models = [f"{model.name} ({_versions(model.versions)})" for model in self.models[:MODELS_SHOWN]]
        if len(self.models) > MODELS_SHOWN:
            models.append(f"{len(self.models) - MODELS_SHOWN} more")
        return printable("; ".join([*([", ".join(models)] if models else []), f"script: {self.script}"]))

    def warning_lines(self) -> Iterator[str]:
        """Write the warnings as text. Neither these nor `lines` contain control characters of terminals."""
        return (f"Warning: {printable(warning)}" for warning in self.warnings)

    def _lines(self) -> Iterator[str]:
        for model in self.models[:MODELS_SHOWN]:
            default = f" (default: {self.default_reason})" if model.name == self.default_model else ""
            yield f"Model {model.name}, {_versions(model.versions)}{default}"
            yield from (f"  {line}" for line in _signature_lines(model.signatures))
        if len(self.models) > MODELS_SHOWN:
            rest = (f"{model.name} ({_versions(model.versions)})" for model in self.models[MODELS_SHOWN:])
            yield f"and {len(self.models) - MODELS_SHOWN} more models: {', '.join(rest)}"
            yield f"The default is {self.default_model} ({self.default_reason})"
        yield f"Script: {self.script}"
        if self.processes:
            yield f"Processes: {self.processes}"
        if self.settings:
            yield "Settings: " + ", ".join(f"{name}={value}" for name, value in self.settings.items())
        yield from (f"Note: {note}" for note in self.notes[:NOTES_SHOWN])
        if len(self.notes) > NOTES_SHOWN:
            yield f"and {len(self.notes) - NOTES_SHOWN} more notes"


def describe(served: Served, settings: Settings, environ: Mapping[str, str]) -> Report:
    """Report how requests to ``served`` will be answered.

    Raises DiscoveryError if a saved_model.pb is damaged, and ScriptLoadError if the script is not valid
    Python.
    """
    layout = served.layout
    models = served.models
    versions = [(each.name, *version) for each in models for version in each.versions.items()]
    read = {(name, version): read_saved_model(path) for name, version, path in versions}
    newest = {model.name: read[model.name, max(model.versions)] for model in models}
    reports = tuple(
        ModelReport(
            model.name, tuple(model.versions), found.signatures if (found := newest[model.name]) else None
        )
        for model in models
    )
    load_faults = tuple(_faults(models, read, _load_faults))
    faults = (*load_faults, *_faults(models, read, _answer_faults))
    reason = "the only one" if len(models) == 1 else "the first by name"
    if settings.default_model_name is not None:
        reason = "named by SAGEMAKER_TFS_DEFAULT_MODEL_NAME"
    processes = capacity(settings, models=bool(models))
    script = report_on_script(layout, script_model=served.script_model is not None)
    return Report(
        root=layout.root,
        models=reports,
        default_model=served.default_model,
        default_reason=reason,
        script=script.sentence,
        # The run has already reported shared model servers.
        processes="" if settings.loaded_as is not None else processes,
        settings={
            name: "(hidden)"
            if SECRET_NAME.search(name)
            else SECRET_PAIR.sub(r"\1(hidden)", USER_IN_URL.sub("(hidden)@", value))
            for name, value in settings.changed.items()
            if name not in SERVING_VARIABLES
        },
        notes=(
            *_ignored_settings(layout, models, settings),
            *script.notes,
            *_ignored_code(layout),
            *_misplaced_code(layout, models),
            *(_leftovers(layout, models) if models else ()),
            *_faults(models, read, _unsteady_notes),
            # A run of many models has told of them at its start.
            *(variable_notes(environ) if settings.loaded_as is None else ()),
        ),
        warnings=(
            *faults,
            *_column_warnings(reports, settings.csv_columns),
            *script.warnings,
        ),
        load_faults=load_faults,
        model_faults=faults,
        script_fault=script.fault,
    )


def server_warnings(served: Served) -> Iterator[str]:
    """Warn those who start no model server of ops that not each has; as `Report.warning_lines`."""
    for model in served.models:
        for version, folder in model.versions.items():
            for fault in rare_ops(folder):
                yield f"Warning: {model.name} version {version} {printable(fault)}"


Summaries = Mapping[tuple[str, int], SavedModelSummary | None]


def _versions(versions: Sequence[int]) -> str:
    if len(versions) == 1:
        return f"version {versions[0]}"
    return f"versions {', '.join(map(str, versions))}"


def _signature_lines(signatures: Mapping[str, Signature] | None) -> Iterator[str]:
    if signatures is None:
        yield "saved_model.pbtxt: its signatures are not read here"
        return
    lines: dict[str, str] = {}
    for name, signature in sorted(signatures.items(), key=lambda item: item[0] != DEFAULT_SIGNATURE):
        method = signature.method.rpartition("/")[2] or "no method"
        lines[name] = f"({method}): {_tensors(signature.inputs)} -> {_tensors(signature.outputs)}"
    if lines.get("serve") == lines.get(DEFAULT_SIGNATURE, ""):  # Keras exports one function under two names
        lines = {f"{DEFAULT_SIGNATURE}, serve": lines.pop("serve"), **lines}
        del lines[DEFAULT_SIGNATURE]
    yield from (f"{name} {text}" for name, text in list(lines.items())[:SIGNATURES_SHOWN])
    if len(lines) > SIGNATURES_SHOWN:
        yield f"and {len(lines) - SIGNATURES_SHOWN} more signatures"


def _tensors(specs: Mapping[str, TensorSpec]) -> str:
    shown = []
    for alias, spec in list(specs.items())[:TENSORS_SHOWN]:
        sizes = ["..."]
        if spec.shape is not None:
            sizes = ["?" if size is None else f"{size}" for size in spec.shape]
        shown.append(f"{alias} {spec.dtype.removeprefix('DT_').lower()}[{', '.join(sizes)}]")
    more = [f"{len(specs) - TENSORS_SHOWN} more"] if len(specs) > TENSORS_SHOWN else []
    return ", ".join(shown + more) or "nothing"


FindFaults = Callable[[Path, SavedModelSummary], Iterator[str]]


def _faults(models: Sequence[DiscoveredModel], read: Summaries, find: FindFaults) -> Iterator[str]:
    for model in models:
        for version, folder in model.versions.items():
            summary = read[model.name, version]
            if summary is not None:
                yield from (f"{model.name} version {version} {fault}" for fault in find(folder, summary))


def _load_faults(folder: Path, summary: SavedModelSummary) -> Iterator[str]:
    """Find what keeps a version from being loaded."""
    unknown = unknown_ops(summary.ops)
    if unknown:
        yield (
            f"won't load: neither TensorFlow nor TensorFlow Text has its op {unknown[0]}, only a server "
            "that was built with the library which registers it."
        )
    path = folder / WARMUP_FILE
    damage = ""
    if path.exists() and not path.is_file():
        damage = "is not a file"
    elif path.exists():
        try:
            with path.open("rb") as file:
                for _ in tfrecords(file, max_bytes=path.stat().st_size):
                    pass
        except (BadInput, PayloadTooLarge) as error:
            damage = f"can't be read: {error}".removesuffix(".")
    if damage:
        yield f"won't load: {WARMUP_FILE} {damage}."
    if ("serve",) not in summary.tags:
        tags = "; ".join(", ".join(tags) or "none" for tags in summary.tags)
        yield f"has no graph tagged serve (its tags: {tags}), so it won't load."


def _answer_faults(folder: Path, summary: SavedModelSummary) -> Iterator[str]:
    """Find what makes a version answer errors, or nothing."""
    if ("serve",) in summary.tags and not summary.signatures:
        yield "has no signatures, so no request can reach it: save it with some."
    if summary.lost_variables:
        yield (
            f"will fail every predict with 'Could not find variable {summary.lost_variables[0]}': "
            "tf.saved_model.save loses the variables of Keras 3 models. Export it again with "
            "model.export(FOLDER)."
        )
    if misses_variables(folder):
        yield (
            "has no variables/variables.index, so it answers errors: copy the whole folder, variables "
            "included."
        )
    if calls_python(folder, summary.signatures.values()):
        yield (
            "will fail every predict with 'Missing py trampoline': it calls Python (tf.py_function, "
            "tf.numpy_function), which a SavedModel lacks. Export it with TensorFlow's own operations; "
            "Python goes into inference.py."
        )


def _unsteady_notes(folder: Path, summary: SavedModelSummary) -> Iterator[str]:
    """Note what makes an answer depend on more than its record, which the model's author may mean."""
    by_parts: dict[tuple[str, ...], list[str]] = {}
    for name, parts in unsteady_parts(folder, summary.signatures.values()).items():
        by_parts.setdefault(parts, []).append(name)
    for parts, names in by_parts.items():
        if parts:
            yield (
                f"answers {words_joined(names)} by way of {words_joined(parts)}: a record's answer may "
                "change with the other records of its request, or from request to request. Generators, "
                "agents and models with a state mean that, and a branch may never be taken; else export it "
                "with training=False."
            )


def _column_warnings(models: Sequence[ModelReport], columns: str | None) -> Iterator[str]:
    """Warn if no model has the inputs that the order of ``columns`` names."""
    names = {name.strip() for name in next(csv.reader([columns or ""]), [])}
    known = [(model.name, list(model.signatures.values())) for model in models if model.signatures]
    if (
        names
        and known
        and not any(are_names_of(each.inputs, names) for _, signatures in known for each in signatures)
    ):
        inputs = (f"{name} takes {', '.join(sorted(each[0].inputs))}" for name, each in known[:MODELS_SHOWN])
        yield f"TFS_PROXY_CSV_COLUMNS={columns} is no order of a model's inputs: {'; '.join(inputs)}."


def _ignored_settings(
    layout: ModelLayout, models: Sequence[DiscoveredModel], settings: Settings
) -> Iterator[str]:
    if settings.model_name and len(models) > 1:
        yield f"TFS_PROXY_MODEL_NAME={settings.model_name} is ignored: there is more than one model."
    if settings.program != layout.program:
        missing = BELOW_ROOT.code / settings.program
        yield f"SAGEMAKER_PROGRAM={settings.program} is ignored: there is no {missing}."


def _ignored_code(layout: ModelLayout) -> Iterator[str]:
    requirements = layout.requirements.is_file()
    lib = layout.lib.is_dir()
    wheels = layout.wheels.is_dir()
    if layout.code.is_dir() and not layout.script.is_file():
        others = words_joined(sorted(path.name for path in layout.code.glob("*.py"))[:NAMES_SHOWN])
        scripts = f"; it has {others}" if others else ""
        yield f"{BELOW_ROOT.code}/ is ignored, because it has no {layout.program}{scripts}."
    elif requirements and lib:
        yield f"{BELOW_ROOT.requirements} is ignored, because {BELOW_ROOT.lib}/ holds the packages."
    elif wheels and not requirements:
        yield f"{BELOW_ROOT.wheels}/ is ignored, because there is no {BELOW_ROOT.requirements}."


def _misplaced_code(layout: ModelLayout, models: Sequence[DiscoveredModel]) -> Iterator[str]:
    folders = {layout.root}
    for model in models:
        for path in model.versions.values():
            folders |= {path, *(folder for folder in path.parents if folder.is_relative_to(layout.root))}
    for folder in sorted(folders):
        below = folder.relative_to(layout.root)
        if folder != layout.root and (folder / BELOW_ROOT.script).is_file():
            yield f"{below / BELOW_ROOT.code}/ is ignored: the script's folder is code/ at the top."
        for path in (BELOW_ROOT.script, BELOW_ROOT.requirements):
            if (folder / path.name).is_file():
                yield f"{below / path.name} is ignored: it must be {path}."
    if (layout.lib / BELOW_ROOT.requirements.name).is_file():
        misplaced = BELOW_ROOT.lib / BELOW_ROOT.requirements.name
        yield f"{misplaced} is ignored: it must be {BELOW_ROOT.requirements}."


def _leftovers(layout: ModelLayout, models: Sequence[DiscoveredModel]) -> Iterator[str]:
    """Note other files at the top level, unless that is a SavedModel itself."""
    paths = [path for model in models for path in model.versions.values()]
    known = {layout.code.name, layout.script.name, layout.requirements.name}
    if layout.root in paths:
        return
    others = [
        entry.name + "/" * entry.is_dir()
        for entry in sorted(layout.root.iterdir())
        if entry.name not in known
        and not entry.name.startswith(".")
        and not any(path.is_relative_to(entry) for path in paths)
    ]
    if others:
        more = f" and {len(others) - NAMES_SHOWN} more" if len(others) > NAMES_SHOWN else ""
        yield f"Not served, because not a SavedModel: {', '.join(others[:NAMES_SHOWN])}{more}."


def variable_notes(environ: Mapping[str, str]) -> Iterator[str]:
    """Name what is set in vain: settings that are gone or misspelt, and AWS's that nothing here reads."""
    known = [row.variable for row in TABLE]
    others = []
    for name in unknown_variables(environ, TABLE):
        if name in GONE:
            yield f"{name} is set, and is not read: {GONE[name]}."
        elif close := similar(name, known, 0.85):
            yield f"{name} is set, but it is not a setting: did you mean {close}?"
        else:
            others.append(name)
    if others:
        are = "is set, but it is not a setting" if len(others) == 1 else "are set, but they are not settings"
        yield f"{words_joined(others)} {are}."
