"""Keys of channels: a private key, its certificate, and the certificates of the peers that may connect.

A directory has `key.pem` (mode 0600), `certificate.pem`, and `peers/` with the certificates of all peers that are
allowed. Connections use TLS 1.3 of the standard library. Each side accepts exactly the certificates in its list,
regardless of their content, and no certificate can vouch for another one.
"""

from __future__ import annotations

import datetime
import shutil
import ssl
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ..errors import InvalidArgument, MissingExtra, NameTaken

KEY: Final = "key.pem"
CERTIFICATE: Final = "certificate.pem"
PEERS: Final = "peers"


def make(directory: str | Path, name: str = "") -> Path:
    """Make a key and its certificate in a directory, and an empty list of peers. Blocks for the disk.

    Args:
        directory: created if it is missing, with mode 0700.
        name: written into the certificate, for information only.

    Returns:
        The path of the certificate, which goes into the list of each peer.

    Raises:
        NameTaken: the directory has a key already.
        MissingExtra: the package `cryptography` is not installed.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError:
        raise MissingExtra(
            "making keys needs the package cryptography: pip install 'shmtensor[channel]', or make them with openssl "
            "(docs/channel.md)"
        ) from None
    place = Path(directory)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    (place / PEERS).mkdir(mode=0o700, exist_ok=True)
    if (place / KEY).exists():
        raise NameTaken(f"{place / KEY} exists; peers know its certificate. Use another directory, or remove it first")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name or "shmtensor channel")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2))
        .not_valid_after(now + datetime.timedelta(days=365 * 100))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = place / KEY
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(secret)
    (place / CERTIFICATE).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return place / CERTIFICATE


def make_all(directory: str | Path, names: Iterable[str]) -> dict[str, Path]:
    """Make keys for several hosts, each with the certificates of all others in its list. Blocks for the disk.

    Args:
        directory: gets a directory for each host, to be copied to that host only.
        names: names of the hosts.

    Returns:
        The directory of each.

    Raises:
        NameTaken, MissingExtra: as `make`.
    """
    certificates = {name: make(Path(directory, name), name) for name in names}
    for name, certificate in certificates.items():
        for other in certificates.values():
            if other != certificate:
                shutil.copy(certificate, other.parent / PEERS / f"{name}.pem")
    return {name: certificate.parent for name, certificate in certificates.items()}


def stamp_of(directory: str | Path) -> object:
    """Return a value that changes when the keys in a directory change."""
    place = Path(directory)
    found = []
    for path in (place / KEY, place / CERTIFICATE, *sorted((place / PEERS).glob("*.pem"))):
        with suppress(OSError):
            status = path.stat()
            found.append((str(path), status.st_mtime_ns, status.st_ino))
    return tuple(found)


class Keys:
    """The current keys in a directory. Adding or removing a peer takes effect at the next connection."""

    def __init__(self, directory: str | Path) -> None:
        """Read the keys.

        Raises:
            InvalidArgument: a file is missing or malformed, or the key can be read by others.
        """
        place = Path(directory)
        key, certificate = place / KEY, place / CERTIFICATE
        advice = f"`shmtensor-manager keys {place}` makes a key, and docs/channel.md describes how to give it to peers"
        try:
            if key.stat().st_mode & 0o077:
                raise InvalidArgument(f"{key} can be read by others; chmod 600 {key}, or make another one")
            peers = [path.read_text() for path in sorted((place / PEERS).glob("*.pem"))]
        except OSError as problem:
            raise InvalidArgument(f"no keys in {place}: {problem.strerror} ({problem.filename}); {advice}") from None
        try:
            self.allowed: frozenset[bytes] = frozenset(ssl.PEM_cert_to_DER_cert(text) for text in peers)
            self._contexts = [_context(purpose, certificate, key, peers) for purpose in (True, False)]
        except (ValueError, OSError) as problem:
            raise InvalidArgument(f"the keys in {place} cannot be used: {problem}; {advice}") from None

    def wrap(self, connection: Any, listening: bool) -> ssl.SSLSocket:
        """Turn a connection into a TLS one, with a peer in the list. Blocks as the connection does.

        Raises:
            ssl.SSLError, OSError: the peer is not in the list, rejects our certificate, or does not use TLS.
        """
        wrapped = self._contexts[0 if listening else 1].wrap_socket(connection, server_side=listening)
        if wrapped.getpeercert(binary_form=True) not in self.allowed:
            wrapped.close()
            raise ssl.SSLError(
                "the certificate of the peer is not in the list of peers; "
                "copy it into peers/ of the keys (docs/channel.md)"
            )
        return wrapped


def _context(listening: bool, certificate: Path, key: Path, peers: list[str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if listening else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_cert_chain(certificate, key)
    if listening:
        context.num_tickets = 0
    if peers:
        context.load_verify_locations(cadata="\n".join(peers))
    return context
