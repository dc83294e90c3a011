"""A CA and what it signs, made in the test."""

import datetime as dt
import ssl
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """A CA whose certificate is at ``path``, a file in ``folder``."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder, self._name, self._key = folder, name, ec.generate_private_key(ec.SECP256R1())
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(self._signed(name, self._key, is_ca=True))

    def sign(self, name: str, passphrase: bytes = b"", *, is_ca: bool = False) -> Path:
        """Write a certificate of localhost, NAME.crt, and its key, NAME.key; returns the key's path."""
        key, path = ec.generate_private_key(ec.SECP256R1()), self._folder / f"{name}.key"
        path.with_suffix(".crt").write_bytes(self._signed(name, key, is_ca=is_ca))
        hidden = (
            serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
        )
        form = serialization.PrivateFormat.PKCS8
        path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, hidden))
        return path

    def context(self, own: Path | None = None) -> ssl.SSLContext:
        """Trust in this CA, for a client with its ``own`` key and the certificate beside it."""
        context = ssl.create_default_context(cafile=self.path)
        if own is not None:
            context.load_cert_chain(own.with_suffix(".crt"), own)
        return context

    def _signed(self, name: str, key: ec.EllipticCurvePrivateKey, *, is_ca: bool) -> bytes:
        now = dt.datetime.now(dt.UTC)
        subject, issuer = (
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in (name, self._name)
        )
        names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        builder = (
            x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
