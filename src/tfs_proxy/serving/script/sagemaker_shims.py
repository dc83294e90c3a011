"""Modules that scripts for AWS's toolkits import, for environments without those toolkits.

``from sagemaker_containers.beta.framework import encoders, worker`` and the newer
``from sagemaker_inference import content_types, decoder, encoder`` work, with the names that scripts use:
encoders and decoders, names of media types, ``worker.Response``. So does ``sklearn.externals.joblib``,
which old scripts load their models with. Installed modules come first.
"""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from tfs_proxy.data.registry import decode_array, encode_array, parse_media_type
from tfs_proxy.serving.script.values import Response
from tfs_proxy.values.errors import NotAcceptable, UnsupportedMediaType
from tfs_proxy.wire import media_types as media

Names = Callable[[], Mapping[str, Any]]


def _response(
    response: Any = None,
    accept: str | None = None,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    mimetype: str | None = None,
    **_: Any,
) -> Response:
    """Make a ``worker.Response`` of the older toolkit."""
    return Response(response or b"", mimetype or accept or media.JSON, int(status), dict(headers or {}))


def _encode(array_like: Any, content_type: str) -> str | bytes:
    """Encode text types as str, which scripts go on with; npy as bytes."""
    encoded = encode_array(array_like, content_type)
    return encoded if parse_media_type(content_type).type == media.NPY else encoded.decode()


_TYPES = {
    "JSON": media.JSON,
    "CSV": media.CSV,
    "NPY": media.NPY,
    "OCTET_STREAM": media.BYTES,
    "ANY": "*/*",
    "UTF8_TYPES": [media.JSON, media.CSV],
}
_CODERS = {"encode": _encode, "decode": decode_array}
OLD = "sagemaker_containers.beta.framework"
NEW = "sagemaker_inference"
MODULES: Mapping[str, Names] = {
    "sagemaker_containers": dict,
    "sagemaker_containers.beta": dict,
    OLD: dict,
    f"{OLD}.content_types": lambda: _TYPES,
    f"{OLD}.encoders": lambda: _CODERS,
    f"{OLD}.env": dict,
    f"{OLD}.modules": dict,
    f"{OLD}.transformer": dict,
    f"{OLD}.worker": lambda: {"Response": _response},
    NEW: dict,
    f"{NEW}.content_types": lambda: _TYPES,
    f"{NEW}.decoder": lambda: _CODERS,
    f"{NEW}.encoder": lambda: _CODERS,
    f"{NEW}.errors": lambda: {"UnsupportedFormatError": UnsupportedMediaType, "NotAcceptable": NotAcceptable},
    "sklearn.externals.joblib": lambda: vars(importlib.import_module("joblib")),
}
"""Names in each module, by its name. Those without any are there for scripts that import in bulk."""


class _Offered(MetaPathFinder, Loader):
    """Finder and loader of `MODULES`, if no finder before it has one of that name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname not in MODULES:
            return None
        is_package = any(other.startswith(f"{fullname}.") for other in MODULES)
        return ModuleSpec(fullname, self, is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        own = MODULES[module.__name__]()
        vars(module).update({name: value for name, value in own.items() if not name.startswith("__")})


def install_shims() -> None:
    """Make the modules importable in this process; idempotent."""
    if not any(isinstance(finder, _Offered) for finder in sys.meta_path):
        sys.meta_path.append(_Offered())
