"""Requests of web pages and of programs, and what the guard of a loopback address makes of each at every door."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

SETTINGS = {
    "TFS_PROXY_ALLOWED_ORIGINS": "http://app.example, https://app.example",
    "TFS_PROXY_ALLOWED_HOSTS": "model.example",
}
OWN = "127.0.0.1:PORT"
ORIGIN, HOST = "TFS_PROXY_ALLOWED_ORIGINS", "TFS_PROXY_ALLOWED_HOSTS"


@dataclass(frozen=True)
class Case:
    """A request with these headers, in which PORT stands for the server's; ``refused`` is in the 403, "" passes."""

    refused: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    host: str | None = OWN
    method: str = "POST"
    again: str = ""

    def head(self, path: str, port: int) -> str:
        """Its first lines, without those of a body."""
        host = {} if self.host is None else {"Host": self.host}
        lines = [f"{name}: {value}" for name, value in {**host, **self.headers}.items()]
        version = "1.0" if self.host is None else "1.1"
        text = "\r\n".join([f"{self.method} {path} HTTP/{version}", *lines, *filter(None, [self.again])])
        return text.replace("PORT", str(port)) + "\r\n"


def origin(text: str, **more: str) -> dict[str, str]:
    """The headers of a page at this origin; keyword headers have underscores for dashes."""
    return {"Origin": text, **{name.replace("_", "-"): value for name, value in more.items()}}


def site(value: str, text: str = "http://evil.example") -> dict[str, str]:
    """The headers of a page of which the browser says how near it is."""
    return origin(text, Sec_Fetch_Site=value)


CASES = {
    "a program": Case(),
    "a program at HTTP/1.0 without a Host": Case(host=None),
    "localhost": Case(host="localhost:PORT"),
    "LOCALHOST": Case(host="LOCALHOST"),
    "below localhost": Case(host="tenant.localhost:PORT"),
    "another loopback address": Case(host="127.8.9.10:1"),
    "IPv6": Case(host="[::1]:PORT"),
    "Docker's name of the host": Case(host="host.docker.internal:PORT"),
    "a listed name": Case(host="Model.example:PORT"),
    "a foreign name": Case(HOST, host="evil.example"),
    "a name that ends like localhost": Case(HOST, host="evil-localhost"),
    "a name that begins like localhost": Case(HOST, host="localhost.evil.example:PORT"),
    "a name that begins like an address": Case(HOST, host="127.0.0.1.evil.example"),
    "junk before the name": Case(HOST, host="evil.example@localhost"),
    "junk behind the name": Case(HOST, host="localhost:PORT@evil.example"),
    "another address": Case(HOST, host="192.168.1.7:PORT"),
    "a rebound name": Case(HOST, site("same-origin", "http://evil.example:PORT"), host="evil.example:PORT"),
    "GET by a rebound name": Case(HOST, host="evil.example", method="GET"),
    "its own page": Case(headers=origin(f"http://{OWN}")),
    "its own page by IPv6": Case(headers=origin("http://[::1]:PORT"), host="[::1]:PORT"),
    "its own page, other letters": Case(headers=origin("HTTP://LocalHost:PORT"), host="localhost:PORT"),
    "its own page without a port": Case(headers=origin("http://localhost"), host="localhost:80"),
    "its own page with a port": Case(headers=origin("https://localhost:443"), host="localhost"),
    "its own page, another scheme": Case(headers=origin(f"https://{OWN}")),
    "behind a proxy": Case(headers=origin("https://model.site", X_Forwarded_Host="model.site")),
    "behind two proxies": Case(headers=origin("https://a.site:8443", X_Forwarded_Host="a.site:8443, inner")),
    "behind another proxy": Case(
        ORIGIN, origin("https://evil.example", X_Forwarded_Host="model.site, evil.example")
    ),
    "a foreign page": Case(ORIGIN, origin("http://evil.example")),
    "a foreign page that sends text": Case(ORIGIN, origin("http://evil.example", Content_Type="text/plain")),
    "a page at another port": Case(ORIGIN, origin("http://127.0.0.1:1")),
    "a page at a longer host": Case(ORIGIN, origin("http://127.0.0.1.evil.example:PORT")),
    "a page at a host that ends alike": Case(
        ORIGIN, origin("http://evil.localhost:PORT"), host="localhost:PORT"
    ),
    "a page with a user": Case(ORIGIN, origin(f"http://{OWN}@evil.example")),
    "a page of nobody": Case(ORIGIN, origin("null")),
    "a page without a scheme": Case(ORIGIN, origin(OWN)),
    "two origins in one header": Case(ORIGIN, origin(f"http://{OWN}, http://evil.example")),
    "two headers, the foreign one first": Case(
        ORIGIN, origin("http://evil.example"), again=f"Origin: http://{OWN}"
    ),
    "same origin, whatever it is": Case(headers=site("same-origin")),
    "typed by the user": Case(headers=site("none")),
    "another site": Case(ORIGIN, site("cross-site")),
    "another site with our own origin": Case(ORIGIN, site("cross-site", f"http://{OWN}")),
    "another site without an origin": Case(ORIGIN, {"Sec-Fetch-Site": "cross-site"}),
    "the same site": Case(ORIGIN, site("same-site")),
    "an unknown site": Case(ORIGIN, site("SAME-ORIGIN")),
    "a listed page": Case(headers=site("cross-site", "http://app.example")),
    "a listed page with its default port": Case(headers=origin("https://app.example")),
    "a listed page by another port": Case(ORIGIN, origin("https://app.example:8443")),
    "a listed page with a path": Case(ORIGIN, origin("https://app.example/")),
    "DELETE by a foreign page": Case(ORIGIN, origin("http://evil.example"), method="DELETE"),
    "OPTIONS by a foreign page": Case(ORIGIN, origin("http://evil.example"), method="OPTIONS"),
    "GET by a foreign page": Case(headers=site("cross-site"), method="GET"),
    "HEAD by a foreign page": Case(headers=site("cross-site"), method="HEAD"),
}


def answered(port: int, request: str, host: str = "127.0.0.1") -> str:
    """The head and what has come of the body of the answer to ``request``."""
    with socket.create_connection((host, port), timeout=30) as connection:
        connection.sendall(request.encode())
        answer = b""
        while b"\r\n\r\n" not in answer and (part := connection.recv(65536)):
            answer += part
        length = next(
            (
                line.split()[1]
                for line in answer.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            ),
            b"0",
        )
        while (
            len(answer.partition(b"\r\n\r\n")[2]) < int(length)
            and request[:5] != "HEAD "
            and (part := connection.recv(65536))
        ):
            answer += part
        return answer.decode("latin-1")
