"""The part of nginx.conf that sends TF Serving's own JSON straight to the model server: pure.

Only for models without a script, and only what is certain: `POST` of one JSON object, in a media type,
an Accept and attributes that need no conversion, with a Content-Length that is small, from a client that
does not ask for the times of stages. Anything else, and anything that the model server refuses, goes to
Python with the same body, so that both ways give the same answers. Values from headers reach a path only
through patterns that name every character allowed: those of `tfs_proxy.attributes`, which Python reads the
same header by.
"""

from collections.abc import Iterable

from msgspec import Struct

from tfs_proxy.attributes import METHOD, MODEL_NAME, MODEL_VERSION, PREFIX, Attribute
from tfs_proxy.deployment import CaptureOptions, TraceSampling
from tfs_proxy.payload.media_types import JSON
from tfs_proxy.supervisor.nginx import traces, uploads
from tfs_proxy.wire.header_names import ASKS_TIMING, CUSTOM_ATTRIBUTES, IS_CAPTURED, nginx_variable

MAX_BRACES = 6
"""How deep objects may lie in each other; a deeper body goes to Python."""

MAX_BODY_MB = 4
"""Up to what size nginx holds a body in memory and looks at it; a larger one goes to Python."""

SMALL = f"(?:[0-9]{{1,6}}|[1-{MAX_BODY_MB - 1}][0-9]{{6}})"
"""A Content-Length below ``MAX_BODY_MB``."""

ACCEPTS = ("", "*/*", JSON)
"""What an Accept may be."""


class LineEnds(Struct, frozen=True):
    """Which answers are one line: those to ``Accept: application/json``, or all.

    ``removable`` says whether nginx can edit answers; if it can't, such requests are Python's.
    """

    all_removed: bool = False
    removable: bool = True

    @property
    def removed_for(self) -> tuple[str, ...]:
        """The Accepts whose answers have no line ends."""
        return ACCEPTS if self.all_removed else (JSON,)

    @property
    def fast_for(self) -> tuple[str, ...]:
        """The Accepts that may go to the model server."""
        return ACCEPTS if self.removable else tuple(each for each in ACCEPTS if each not in self.removed_for)


_OF_JSON = LineEnds()
_LINE_END = r'"\n"'

BETWEEN = r"[^{}\"\x80-\xff]*+"
STRING = r"\"[^\"\\\\\x80-\xff]*+(?:\\\\.[^\"\\\\\x80-\xff]*+)*+\""
SPACE = r"[ \t\r\n]*+"


def _object(depth: int) -> str:
    """One object whose braces balance, strings left out, at most ``depth`` deep; in nginx's quoting.

    Nothing in it backtracks or recurses, so a match takes at most two steps a character and no memory:
    PCRE gives up at ten million steps, which `MAX_BODY_MB` can't reach, and nginx would log the body.
    """
    inner = STRING if depth == 1 else f"{STRING}|{_object(depth - 1)}"
    return rf"\{{{BETWEEN}(?:(?:{inner}){BETWEEN})*+\}}"


def only_object() -> str:
    """A body that is one object.

    TF Serving answers the first document of a body and ignores the rest without a word; more than one
    document means records, and Python's business.
    """
    return f"^{SPACE}{_object(MAX_BRACES)}{SPACE}\\z"


def _captured(attribute: Attribute) -> str:
    """``key=value`` of an attribute, its value as nginx's variable ``tfs_FIELD``."""
    return f"{attribute.key}=(?<tfs_{attribute.field}>{attribute.certain})"


_MODEL = _captured(MODEL_NAME)
_VERSION = f"(?:,{_captured(MODEL_VERSION)})?"
_METHOD = f"(?:,{_captured(METHOD)})?"
_NAMED_MODELS = (
    f'"~^{_MODEL}{_METHOD}$" "/v1/models/$tfs_model:$method_or_predict";'
    f' "~^{_MODEL}{_VERSION}{_METHOD}$" "/v1/models/$tfs_model/versions/$tfs_version:$method_or_predict";'
)
"""Lines of the map of `_model_path`."""

_METHODS = 'map $tfs_method $method_or_predict { default predict; "~." $tfs_method; }'


def maps(
    default_model: str,
    sampling: TraceSampling | None = None,
    capture: CaptureOptions | None = None,
    line_ends: LineEnds = _OF_JSON,
    *,
    only_default: bool = False,
) -> str:
    """What is decided per request, for the http block.

    With ``only_default``, a request that names a model or version is Python's.
    """
    decided_by = "".join(
        (
            traces.untraced(sampling),
            "$captured" if capture else "",
            "$request_method $content_length $json_sent$json_wanted $http_content_encoding$model_path",
        )
    )
    return f"""map $http_content_type $json_sent {{
        default 0;
        "" 1;
        "~*^application/json *(; *charset=utf-8 *)?$" 1;
    }}
    map "{nginx_variable(ASKS_TIMING)}$http_accept" $json_wanted {{
        default 0;
        {_lines(line_ends.fast_for, "1")}
    }}
    # Only in answers that are not compressed. Within a string of JSON there are none.
    map "$upstream_http_content_encoding$http_accept" $line_end {{
        default "";
        {_lines(line_ends.removed_for, _LINE_END)}
    }}
    {_model_path(f"/v1/models/{default_model}:predict", only_default=only_default)}
    map "{decided_by}" $fast {{
        default 0;
        "~^POST {SMALL} 11 /v1/" 1;
    }}
    map $request_body $certain_method {{
        default PUT;
        "~{only_object()}" POST;
    }}"""


def _lines(keys: Iterable[str], value: str) -> str:
    return " ".join(f'"{key}" {value};' for key in keys)


def _model_path(default_path: str, *, only_default: bool) -> str:
    """The map of where a request goes, by its attributes, and that of its method if they may name one."""
    return f"""map {nginx_variable(CUSTOM_ATTRIBUTES)} $model_path {{
        default "";
        "" "{default_path}";
        "~, " "";
        "~^(?!.*{PREFIX})" "{default_path}";
        {"" if only_default else _NAMED_MODELS}
    }}
    {"" if only_default else _METHODS}"""


CAPTURED_HEADER = f'proxy_set_header {IS_CAPTURED} "$captured";'
"""Tells a worker whether to record a request; a client's own header of that name is overwritten."""


def captured(options: CaptureOptions) -> str:
    """``$captured``, "1" for the share of requests that is recorded, else "": for the http block."""
    return f'split_clients "{traces.DRAWN_BY}" $captured {{ {options.percent:.2f}% 1; * ""; }}'


_REMOVED = 'sub_filter $line_end ""; sub_filter_once off; sub_filter_types application/json;'


def location(
    line_ends: LineEnds = _OF_JSON,
    python: str = "@python",
    python_after: str = "@python_after",
    refused: str = "400 404 501",
) -> str:
    """Where the fast path runs, for the server block; ``@fast`` is entered from ``/invocations``.

    ``python`` is the location of the workers, ``python_after`` that for requests which a model server had.
    Answers with a status of ``refused`` are Python's to explain.

    A body that is not certain is sent with a method that TF Serving refuses: by then nginx has read
    it, and only its answer can still be taken to another place.
    """
    return f"""location @fast {{
            proxy_pass http://models$model_path;
            proxy_method $certain_method;
            {_REMOVED if line_ends.removable else ""}
            proxy_intercept_errors on;
            error_page {refused} = {python};
            error_page 502 = {python_after};
            error_page 408 /.refused/408;
            error_page 413 /.refused/413;
            {uploads.ERROR_PAGE}
            error_page 504 /.refused/model-server-504;
        }}"""


ENTRANCE = "if ($fast) { return 418; }\n            error_page 418 = @fast;"
"""For the location of ``/invocations``: a status that nobody else gives leads to ``@fast``."""
