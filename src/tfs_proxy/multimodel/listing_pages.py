"""Pages of the list of models: which models one has, and the token that stands for the next: pure."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Final

from tfs_proxy.errors import BadInput
from tfs_proxy.multimodel.registry import ListedModel
from tfs_proxy.names import is_loaded_model_name

PAGE_SIZE: Final = 100


def page(models: Sequence[ListedModel], token: str | None) -> tuple[Sequence[ListedModel], str | None]:
    """The models of a page and the token of the next, if there is one; ``models`` are sorted by name.

    The token holds the last name of its page, so that loads and unloads between two pages make no other
    model appear twice or never. Raises BadInput for a token that no page has given.
    """
    last = None if token is None else _name_in(token)
    rest = models if last is None else [model for model in models if model.name > last]
    shown = rest[:PAGE_SIZE]
    return shown, _token_after(shown[-1].name) if len(rest) > PAGE_SIZE else None


def _token_after(name: str) -> str:
    return urlsafe_b64encode(name.encode()).decode().rstrip("=")


def _name_in(token: str) -> str:
    try:
        name = urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode("ascii")
    except ValueError:
        name = ""
    if not is_loaded_model_name(name) or _token_after(name) != token:
        raise BadInput("next_page_token is not one that a list of models has given")
    return name
