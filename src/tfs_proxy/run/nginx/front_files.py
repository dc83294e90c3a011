"""Files of keys and TLS: read at the start, and again once their content has changed."""

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tfs_proxy.run.nginx.callers import ADMIN_KEYS, API_KEYS, Keys, keys_of
from tfs_proxy.run.process import ChildProcess
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.errors import SettingsError

log = logging.getLogger(__name__)

CERTIFICATE = "TFS_PROXY_TLS_CERTIFICATE"
KEY = "TFS_PROXY_TLS_KEY"
CLIENT_CA = "TFS_PROXY_TLS_CLIENT_CA"
SECRET: Final = frozenset({API_KEYS, ADMIN_KEYS, KEY})
"""Variables whose value people take for the secret, and not for the name of its file."""

LOOK_SECONDS: Final = 1.0
"""Between two looks; two that see the same show that a change is complete."""


class FrontFiles:
    """``contents`` are those that nginx uses, by the variable that names the file.

    nginx has copies in ``home``, by the same names: it can be restarted whatever becomes of the files.
    """

    def __init__(self, settings: Settings, home: Path) -> None:
        self._paths = settings.secured
        self.home = home
        self.contents: Mapping[str, bytes] = {}
        self.keys: Keys | None = None

    def read(self) -> Mapping[str, bytes]:
        """All contents as they are now. Raises SettingsError for a file that can't be read."""
        contents = {}
        for variable, path in self._paths.items():
            try:
                if not Path(path).is_file() and Path(path).exists():  # another read of a pipe would wait
                    raise SettingsError(f"{variable}={path} can't be used: it is not a file.")
                contents[variable] = Path(path).read_bytes()
            except OSError as error:
                if variable in SECRET and not isinstance(error, PermissionError):
                    raise SettingsError(
                        f"{variable} can't be used: it names a file, and there is none of this name. The "
                        "value is not shown, since it may be the secret itself."
                    ) from None
                raise SettingsError(f"{variable}={path} can't be read: {error.strerror}.") from error
        return contents

    def use(self, contents: Mapping[str, bytes]) -> None:
        """Checks them, and copies them for nginx. Raises SettingsError that names the file, and keeps all."""
        keys = keys_of({variable: (self._paths[variable], content) for variable, content in contents.items()})
        new = {variable: self.home / f"{variable}.new" for variable in contents}
        for variable, path in new.items():
            path.touch(0o600)
            path.write_bytes(contents[variable])
        if CERTIFICATE in new:
            self._check_tls(new)
        for variable, path in new.items():
            path.rename(self.home / variable)
        self.contents = contents
        self.keys = keys

    def _check_tls(self, files: Mapping[str, Path]) -> None:
        import ssl  # only here: it takes 10 ms of a start

        of_clients = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        of_server = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        variable = CERTIFICATE
        wanted = "a certificate in PEM"
        try:
            of_server.load_verify_locations(files[CERTIFICATE])
            variable = KEY
            wanted = f"the key of {CERTIFICATE}={self._paths[CERTIFICATE]}, in PEM and without a passphrase"
            of_clients.load_cert_chain(files[CERTIFICATE], files[KEY], password="")
            if CLIENT_CA in files:
                variable = CLIENT_CA
                wanted = "certificates of CAs in PEM"
                of_clients.load_verify_locations(files[CLIENT_CA])
            fits = CLIENT_CA not in files or of_clients.cert_store_stats()["x509_ca"] > 0
            reason = None
        except ssl.SSLError as error:
            fits = False
            reason = error.reason
        if not fits:
            why = f" (OpenSSL: {reason})" if reason else ""
            raise SettingsError(
                f"{variable}={self._paths[variable]} can't be used: it must be {wanted}{why}."
            )

    async def follow(self, configure: Callable[[], None], nginx: ChildProcess) -> None:
        """Has nginx configured anew at each change; what can't be used is logged once and changes nothing.

        Requests that have begun are answered by nginx's former workers.
        """
        seen: Mapping[str, bytes] | str = self.contents
        judged = seen
        while self._paths:
            await asyncio.sleep(LOOK_SECONDS)
            before = seen
            try:
                seen = self.read()
            except SettingsError as error:
                seen = str(error)
            if seen != before or seen == judged:
                continue
            judged = seen
            try:
                if isinstance(seen, str):
                    raise SettingsError(seen)  # noqa: TRY301 - as if it could not be used
                if changed := [name for name, content in seen.items() if content != self.contents[name]]:
                    self.use(seen)
                    configure()
                    nginx.send_signal(signal.SIGHUP)
                    log.info("%s changed: nginx takes it up", " and ".join(changed))
            except (SettingsError, OSError) as error:
                sentence = "a change can't be used, and what was read before goes on: %s"
                log.error(sentence, error)  # noqa: TRY400 - the sentence says it all
