"""The order of the package's rooms, read off every module's own imports."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from http import HTTPStatus
from pathlib import Path

import pytest

from tfs_proxy.wire import header_names, media_types

PACKAGE = Path(__file__).parents[2] / "src" / "tfs_proxy"
MODULES = sorted(PACKAGE.rglob("*.py"))
ROOMS = (
    "values",
    "settings",
    "wire",
    "observe",
    "data",
    "model",
    "serving",
    "worker",
    "run",
    "transform",
    "embedded",
    "tools",
    "commands",
)
"""From the ground up: a room may import itself and any room of an earlier line, and nothing else of ours."""

RANKS = {room: rank for rank, room in enumerate(ROOMS)}
BESIDE_THEIR_ROOM = {"testing": "tools", "cli": "commands", "__init__": "commands", "__main__": "commands"}
"""Modules directly below the package, where users find them, and the room that each belongs to."""

PEERS = ("worker", "run", "transform", "embedded")
"""None of these imports another: they are different programs, or may become different distributions."""

WINGS = (
    "errors",
    "flags",
    "model_config",
    "core",
    "tensorflow",
    "batching",
    "loader",
    "lifecycle",
    "rest grpc_services",
    "grpc_server",
    "server",
    "__init__",
    "__main__",
)
"""The same order within the embedded server."""

WING_RANKS = {wing: rank for rank, line in enumerate(WINGS) for wing in line.split()}
EMBEDDED = PACKAGE / "embedded"
EMBEDDED_MODULES = [module for module in MODULES if module.is_relative_to(EMBEDDED)]

EMBEDDED_MAY_IMPORT = (
    "values",
    "settings.parsers",
    "wire",
    "data.serving_json",
    "data.formats.framing",
    "embedded",
)
MOST_MODULES = 25
MOST_LINES = 400
KERNEL = {"socket", "mmap", "fcntl", "ctypes", "select", "selectors"}
MOST_KERNEL_MODULES = 26
UNDOCUMENTED_PARTS_OF_GUNICORN = {"Arbiter", "RequestParser", "Response", "create"}
DOCUMENTED_PARTS_OF_GUNICORN = {
    "SERVER_SOFTWARE",
    "WSGIApplication",
    "Logger",
    "Worker",
    "GeventWorker",
    "ThreadWorker",
    "SyncWorker",
}
TESTS = Path(__file__).parents[1]
MOST_MODULES_TESTED = 199
MOST_INNER_MODULES_TESTED = 70
"""Modules of ours that tests import, and those of them that no other room imports: both numbers only fall."""

EACH_MODULE = pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(PACKAGE)))
VAGUE = {"utils", "util", "common", "manager", "helper", "helpers", "misc"}


def room(module: Path) -> str:
    """The folder directly below the package, or the room of a module that stands there by itself."""
    first = module.relative_to(PACKAGE).with_suffix("").parts[0]
    return BESIDE_THEIR_ROOM.get(first, first)


def nodes(module: Path) -> Iterator[ast.AST]:
    """All that a module's text is made of."""
    return ast.walk(ast.parse(module.read_text()))


def imported(module: Path) -> Iterator[str]:
    """Full names of everything that a module imports, wherever in its text."""
    for node in nodes(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms_imported(module: Path) -> set[str]:
    """Rooms of ours that a module imports from."""
    names = {name.split(".")[1] for name in imported(module) if name.startswith("tfs_proxy.")}
    return {BESIDE_THEIR_ROOM.get(name, name) for name in names} & RANKS.keys()


@EACH_MODULE
def test_imports_go_down_only(module: Path) -> None:
    """The order of rooms is total: each imports only itself and what stands before it."""
    here = room(module)
    upwards = {other for other in rooms_imported(module) - {here} if RANKS[other] >= RANKS[here]}

    assert upwards == set()


@pytest.mark.parametrize("module", EMBEDDED_MODULES, ids=lambda module: str(module.relative_to(EMBEDDED)))
def test_imports_within_the_embedded_server_go_down_only(module: Path) -> None:
    """Its wings are in an order, too, and the servers of REST and gRPC do not import each other."""
    wing = module.relative_to(EMBEDDED).with_suffix("").parts[0]
    names = [name.split(".") for name in imported(module) if name.startswith("tfs_proxy.embedded.")]
    wings = {name[2] for name in names if name[2] in WING_RANKS}

    assert {other for other in wings - {wing} if WING_RANKS[other] >= WING_RANKS[wing]} == set()


def test_every_wing_has_a_place() -> None:
    """A new folder or module of the embedded server takes its place in the order."""
    wings = {module.relative_to(EMBEDDED).with_suffix("").parts[0] for module in EMBEDDED_MODULES}

    assert wings == set(WING_RANKS)


@EACH_MODULE
def test_different_programs_do_not_import_each_other(module: Path) -> None:
    """The embedded server, which could be a distribution of its own, needs little of the rest."""
    here, others = room(module), rooms_imported(module)

    if here in PEERS:
        assert others & (set(PEERS) - {here}) == set()
    if here == "embedded":
        ours = {name.removeprefix("tfs_proxy.") for name in imported(module) if name.startswith("tfs_proxy.")}
        assert {name for name in ours if not name.startswith(EMBEDDED_MAY_IMPORT)} == set()


def test_every_room_has_a_place() -> None:
    """A new folder or module takes its place in the order before anything can import it."""
    assert {room(module) for module in MODULES} == set(RANKS)


@pytest.mark.parametrize("folder", sorted({module.parent for module in MODULES}), ids=lambda path: path.name)
def test_folders_stay_small(folder: Path) -> None:
    """A reader takes in a folder's modules at a glance."""
    assert len([path for path in folder.glob("*.py") if path.stem != "__init__"]) <= MOST_MODULES


@EACH_MODULE
def test_heavy_or_special_libraries_stay_in_their_room(module: Path) -> None:
    """Tensorflow belongs to what runs or writes models, falcon and gunicorn's classes to web, ray to one engine."""
    roots = {name.split(".")[0] for name in imported(module)}

    if room(module) != "embedded" and not module.is_relative_to(PACKAGE / "tools" / "export"):
        assert not roots & {"tensorflow", "keras", "tf_keras"}
    if room(module) != "worker" and module != PACKAGE / "data" / "formats" / "form.py":
        assert not roots & {"falcon", "gunicorn"}
    if module != PACKAGE / "transform" / "ray_cluster.py":
        assert "ray" not in roots
    if module != PACKAGE / "observe" / "spans.py":
        assert "opentelemetry" not in roots


def test_private_names_of_gunicorn_are_few_and_in_one_place() -> None:
    """Every other module takes what gunicorn documents, or takes a private name from there."""

    def of_gunicorn(module: Path) -> set[str]:
        imports = [node for node in nodes(module) if isinstance(node, ast.ImportFrom)]
        return {
            name.name
            for node in imports
            if (node.module or "").split(".")[0] == "gunicorn"
            for name in node.names
        }

    parts = set().union(*map(of_gunicorn, MODULES))
    assert parts == DOCUMENTED_PARTS_OF_GUNICORN | UNDOCUMENTED_PARTS_OF_GUNICORN


def test_tests_know_few_modules() -> None:
    """Most of those that other rooms import, too: a merge of inner modules then breaks no test."""
    ours = {
        ".".join(("tfs_proxy", *module.relative_to(PACKAGE).with_suffix("").parts)): room(module)
        for module in MODULES
        if module.stem != "__init__"
    }
    faces = {
        name for module in MODULES for name in imported(module) if ours.get(name) not in {None, room(module)}
    }
    tested = {name for file in TESTS.rglob("*.py") for name in imported(file) if name in ours}

    assert len(tested) <= MOST_MODULES_TESTED
    assert len(tested - faces) <= MOST_INNER_MODULES_TESTED


def test_no_files_import_each_other() -> None:
    """Whoever reads a file can read all that it needs first: imports for types alone count, too."""
    names = {".".join(module.relative_to(PACKAGE.parent).with_suffix("").parts): module for module in MODULES}
    imports = {name: {each for each in imported(module) if each in names} for name, module in names.items()}

    TopologicalSorter(imports).prepare()


def test_few_modules_talk_to_the_kernel() -> None:
    """Sockets, mappings, locks and C functions stay where they are opened; others pass them on."""
    users = [module for module in MODULES if KERNEL & set(imported(module))]
    assert len(users) <= MOST_KERNEL_MODULES, users


@EACH_MODULE
def test_only_settings_reads_the_environment(module: Path) -> None:
    """Every other room gets what it needs as an argument."""
    reads = [
        node.attr
        for node in nodes(module)
        if isinstance(node, ast.Attribute)
        and node.attr in {"environ", "getenv", "environb"}
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    ]

    assert module.name == "settings.py" or reads == []


@EACH_MODULE
def test_every_module_has_a_name_and_a_sentence(module: Path) -> None:
    """No bag of odds and ends, and the first line says where the module stands."""
    docstring = ast.get_docstring(ast.parse(module.read_text()))

    assert module.stem not in VAGUE
    assert docstring
    assert docstring.splitlines()[0].endswith(".")


def names_of_one_reader(module: Path) -> str:
    """The room, and for tools, which are programs of their own, the tool."""
    here = room(module)
    return "/".join(module.relative_to(PACKAGE).parts[:2]) if here == "tools" else here


@pytest.mark.parametrize("place", sorted({names_of_one_reader(module) for module in MODULES}))
def test_a_class_name_means_one_thing_in_its_room(place: str) -> None:
    """Two classes of one name in a room would be confused in imports and logs."""
    names = Counter(
        node.name
        for module in MODULES
        if names_of_one_reader(module) == place
        for node in nodes(module)
        if isinstance(node, ast.ClassDef)
    )

    assert [name for name, count in names.items() if count > 1] == []


@EACH_MODULE
def test_a_module_is_read_in_one_sitting(module: Path) -> None:
    """One subject, at most 400 lines."""
    assert len(module.read_text().splitlines()) <= MOST_LINES


MOST_NAMES_IN_A_LINE = 3


def packed(node: ast.AST) -> bool:
    """True if one line does what takes two: a tuple of values, a nested conditional, a splatted literal, ..."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            are_plain = all(isinstance(each, ast.Name) for each in (*names, *values))
            return not are_plain or len(names) > MOST_NAMES_IN_A_LINE
        case ast.IfExp():
            return any(isinstance(inner, ast.IfExp) for inner in ast.walk(node) if inner is not node)
        case ast.Call(func=ast.IfExp()):
            return True
        case ast.Call(args=arguments):
            splats = [each.value for each in arguments if isinstance(each, ast.Starred)]
            return any(isinstance(each, ast.Tuple | ast.List) for each in splats)
    return False


@EACH_MODULE
def test_a_line_does_one_thing(module: Path) -> None:
    """White space costs nothing in the budget: what was packed to save lines is written out."""
    assert [ast.unparse(node) for node in nodes(module) if packed(node)] == []


@EACH_MODULE
def test_a_constant_has_one_value(module: Path) -> None:
    """A second assignment at the top of a module would change what stands above it."""
    names = Counter(
        name.id
        for node in ast.parse(module.read_text()).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    )

    assert [name for name, count in names.items() if count > 1] == []


MOST_UNTOLD_FIELDS = 4
MADE_BY_CONSTRUCTORS = {"Readiness", "Heartbeats"}
SENTENCE_IN_A_CALL = r"""\(.*["']([^"' ]+ ){3}"""


def test_fields_are_told_where_they_stand() -> None:
    """Each of many fields has a docstring below it, unless it is a setting, whose help tells it."""
    for node in (node for module in MODULES for node in nodes(module)):
        if isinstance(node, ast.ClassDef):
            made = node.name in MADE_BY_CONSTRUCTORS
            body = getattr(node.body[1], "body", []) if made else node.body
            fields = {
                ast.unparse(field): ast.get_docstring(ast.Module(body[place:], []))
                for place, field in enumerate(body, 1)
                if isinstance(field, ast.AnnAssign | ast.Assign if made else ast.AnnAssign)
            }
            untold = [each for each in fields if not (fields[each] or re.search(SENTENCE_IN_A_CALL, each))]
            assert not untold or len(fields) <= MOST_UNTOLD_FIELDS, untold


def doubles(module: Path) -> Iterator[str]:
    """Statuses and sizes that a module names itself, and media types that it spells."""
    text = module.read_text()
    types = {value for value in vars(media_types).values() if isinstance(value, str) and "/" in value}
    constants = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
    yield from (value for value in constants if value in types)
    yield from re.findall(r"(?m)^_?(?:KILO|MEGA|MEBI|GIGA)BYTE.* = .*1024.*", text)
    statuses = {f"{status.name} = {status.value}" for status in HTTPStatus}
    for names, values in re.findall(r"(?m)^([A-Z_, ]+)(?:: Final)? = ([\d, ]+)$", text):
        pairs = zip(names.split(", "), values.split(", "), strict=True)
        yield from statuses.intersection(f"{name.strip('_')} = {value}" for name, value in pairs)


def test_statuses_sizes_and_media_types_have_one_home() -> None:
    """HTTPStatus, `values.memory` and `wire.media_types`, which all rooms but those below it can import."""
    homes = {"memory", "media_types"}
    others = [module for module in MODULES if module.stem not in homes and room(module) != "settings"]

    assert {str(module): found for module in others if (found := list(doubles(module)))} == {}


def spelled(module: Path) -> Iterator[str]:
    """Every string of a module that is not a docstring, headers in nginx's and WSGI's spelling as in HTTP's."""
    tree = ast.parse(module.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            yield str(node.value).lower().replace("_", "-")


def test_a_header_is_spelled_once() -> None:
    """In header_names: Python and the configuration of nginx take it from there."""
    names = {value.lower() for name, value in vars(header_names).items() if name.isupper() and "X-" in value}
    names.remove(header_names.SAGEMAKER_PREFIX.lower())
    others = [module for module in MODULES if module.stem != "header_names"]
    texts = {str(module): list(spelled(module)) for module in others}
    texts |= {str(file): [file.read_text().lower()] for file in PACKAGE.rglob("*.j2")}

    assert len(names) > 5
    assert [
        (file, name) for file, said in texts.items() for text in said for name in names if name in text
    ] == []


RUN_MODULES = [module for module in MODULES if room(module) == "run"]


@pytest.mark.parametrize("module", RUN_MODULES, ids=lambda module: str(module.relative_to(PACKAGE)))
def test_parts_of_a_run_are_wired_by_constructors(module: Path) -> None:
    """Nobody assigns to an attribute of an object that it holds: that one gets what it needs when it is made."""
    assigned = [
        ast.unparse(target)
        for node in nodes(module)
        if isinstance(node, ast.Assign)
        for whole in node.targets
        for target in (whole.elts if isinstance(whole, ast.Tuple) else [whole])
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Attribute)
    ]

    assert assigned == []


def test_parts_of_a_run_do_not_reach_through_others() -> None:
    """They call an owner only to tell it something, and give objects or methods, which have names."""
    given = [
        ast.unparse(each)
        for node in (node for module in RUN_MODULES for node in nodes(module))
        for each in (ast.walk(node) if getattr(node, "name", "") == "__init__" else ())
        if isinstance(each, ast.Lambda)
    ]

    assert not any("self" in each for each in given)
    assert not any(re.search(r"self\._owner\.\w+\.", module.read_text()) for module in RUN_MODULES)
