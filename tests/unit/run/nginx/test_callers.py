"""Files of callers' keys."""

import pytest

from tfs_proxy.run.nginx.callers import ADMIN_KEYS, API_KEYS, Key, Keys, keys_of
from tfs_proxy.values.errors import SettingsError

ANN, BOB = "aN" * 16, "bO" * 20 + "+/=._-"
FILES = {
    "": "lines with a name and a key are missing",
    "# nobody\n": "lines with a name and a key are missing",
    "ann short": "line 1 has a key of 5 characters: it must have 32 to 256",
    f"\nann {ANN * 9}": "line 2 has a key of 288 characters: it must have 32 to 256",
    f"ann {ANN} more": "line 1 must be a name and a key",
    f"{ANN}": "line 1 must be a name and a key",
    f'ann "{ANN}"': "line 1 must be a name and a key",
    f"ann {ANN}$": "line 1 must be a name and a key",
    f"ann ~{ANN}": "line 1 must be a name and a key",
    f"änn {ANN}": "line 1 must be a name and a key",
    f"ann {ANN}\nann {BOB}": "line 2 has the name of line 1 of ",
    f"ann {ANN}\nbob {ANN.upper()}": "line 2 has the key of line 1 of ",
}


@pytest.mark.parametrize("text", FILES)
def test_a_file_that_can_not_be_used_is_refused_by_its_line(text: str) -> None:
    """The sentence names file and line, and shows no key."""
    with pytest.raises(SettingsError) as caught:
        keys_of({API_KEYS: ("/keys", text.encode())})

    assert f"TFS_PROXY_API_KEYS=/keys can't be used: {FILES[text]}" in str(caught.value)
    assert ANN not in str(caught.value)


def test_a_second_file_has_other_names_and_keys() -> None:
    """Who is an admin has a key for all else, too; without such a file all are."""
    files = {
        API_KEYS: ("/keys", f"# callers\n\n  ann\t{ANN} \r\n".encode()),
        ADMIN_KEYS: ("/admins", f"bob {BOB}".encode()),
    }
    with pytest.raises(
        SettingsError, match="ADMIN_KEYS=/a can't be used: line 1 has the key of line 3 of /keys"
    ):
        keys_of({**files, ADMIN_KEYS: ("/a", f"bob {ANN}".encode())})

    ann, bob = Key("ann", ANN, is_admin=False), Key("bob", BOB, is_admin=True)
    assert keys_of(files) == Keys((ann, bob), guards_all=True)
    assert keys_of({API_KEYS: files[API_KEYS]}) == Keys((Key("ann", ANN, is_admin=True),), guards_all=True)
    assert keys_of({ADMIN_KEYS: files[ADMIN_KEYS]}) == Keys((bob,), guards_all=False)
    assert keys_of({"TFS_PROXY_TLS_KEY": ("/tls", b"a key of another kind")}) is None
