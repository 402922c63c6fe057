"""The keys, certificates and kubeconfigs of one control plane.

All keys are elliptic-curve keys: generating an RSA key can take longer than starting etcd.
`cryptography` is imported when the first key is generated.
"""

import ipaddress
import json
import os
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.testing.controlplane.errors import ControlPlaneError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

__all__ = [
    "Authority",
    "KeyPair",
    "certificate_user",
    "make_kubeconfig",
    "make_signing_keys",
    "token_user",
    "write_private",
]

_AUTHORITY_NAME: Final = "kubernetes"
_LIFETIME: Final = timedelta(days=365)
_SKEW: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Two PEM files.

    Attributes:
        certificate: The certificate; for signing keys, the public key.
        key: The private key.
    """

    certificate: Path
    key: Path


class Authority:
    """The certificate authority of one control plane.

    Args:
        directory: The folder for keys and certificates; must exist.
        clock: Gives the time from which certificates are valid.

    Attributes:
        files: The authority's certificate and key.
    """

    def __init__(self, directory: Path, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._directory = directory
        self._clock = clock
        self._key = _new_key()
        self._name = _name(_AUTHORITY_NAME, ())
        builder = self._builder(self._name, self._key)
        self.files = self._write("ca", self._sign(_as_authority(builder)), self._key)

    def issue_server(self, file: str, hosts: Iterable[str]) -> KeyPair:
        """Return a certificate for a server with these host names and addresses."""
        key = _new_key()
        builder = self._builder(_name(file, ()), key)
        return self._write(file, self._sign(_as_server(builder, hosts)), key)

    def issue_client(self, file: str, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """Return a client certificate for a Kubernetes user in these groups."""
        key = _new_key()
        builder = self._builder(_name(user, groups), key)
        return self._write(file, self._sign(_as_client(builder)), key)

    def _builder(
        self, subject: "x509.Name", key: "EllipticCurvePrivateKey"
    ) -> "x509.CertificateBuilder":
        from cryptography import x509

        now = self._clock.now()
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + _LIFETIME)
        )
        # OpenSSL's strict mode, Python's default since 3.13, requires both identifiers.
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return builder.add_extension(own, critical=False).add_extension(issuer, critical=False)

    def _sign(self, builder: "x509.CertificateBuilder") -> "x509.Certificate":
        from cryptography.hazmat.primitives.hashes import SHA256

        return builder.sign(self._key, SHA256())

    def _write(
        self, file: str, certificate: "x509.Certificate", key: "EllipticCurvePrivateKey"
    ) -> KeyPair:
        from cryptography.hazmat.primitives.serialization import Encoding

        pair = KeyPair(self._directory / f"{file}.crt", self._directory / f"{file}.key")
        pair.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
        pair.key.write_bytes(_private_pem(key))
        return pair


def make_signing_keys(directory: Path, file: str) -> KeyPair:
    """Generate the key pair that signs and verifies service account tokens."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = _new_key()
    pair = KeyPair(directory / f"{file}.pub", directory / f"{file}.key")
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    pair.certificate.write_bytes(public)
    pair.key.write_bytes(_private_pem(key))
    return pair


def _new_key() -> "EllipticCurvePrivateKey":
    try:
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise ControlPlaneError(
            "cryptography is not installed, which a control plane needs for its certificates: "
            "pip install 'navarchos[controlplane]'"
        ) from error

    return ec.generate_private_key(ec.SECP256R1())


def _private_pem(key: "EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    # kube-controller-manager reads this format for every kind of signing key.
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())


def _name(common_name: str, organizations: Sequence[str]) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
    attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
    return x509.Name(attributes)


def _as_authority(builder: "x509.CertificateBuilder") -> "x509.CertificateBuilder":
    from cryptography import x509

    return _with_usage(builder, signs=True).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )


def _as_client(builder: "x509.CertificateBuilder") -> "x509.CertificateBuilder":
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    return _with_usage(builder, signs=False).add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
    )


def _as_server(
    builder: "x509.CertificateBuilder", hosts: Iterable[str]
) -> "x509.CertificateBuilder":
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    return (
        _with_usage(builder, signs=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(map(_alternative, hosts)), critical=False)
    )


def _alternative(host: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _with_usage(builder: "x509.CertificateBuilder", *, signs: bool) -> "x509.CertificateBuilder":
    from cryptography import x509

    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return builder.add_extension(usage, critical=True)


_NAME: Final = "navarchos"


def make_kubeconfig(
    url: str, authority: Path, user: Mapping[str, str], *, namespace: str = "default"
) -> dict[str, object]:
    """Return a kubeconfig with one context: a server, a user and a namespace."""
    cluster = {"server": url, "certificate-authority-data": _data(authority)}
    context = {"cluster": _NAME, "user": _NAME, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": cluster}],
        "users": [{"name": _NAME, "user": dict(user)}],
        "contexts": [{"name": _NAME, "context": context}],
        "current-context": _NAME,
    }


def certificate_user(pair: KeyPair) -> Mapping[str, str]:
    """Return the `user` entry of a kubeconfig for a client certificate."""
    return {
        "client-certificate-data": _data(pair.certificate),
        "client-key-data": _data(pair.key),
    }


def token_user(token: str) -> Mapping[str, str]:
    """Return the `user` entry of a kubeconfig for a bearer token."""
    return {"token": token}


def write_private(path: str | os.PathLike[str], content: Mapping[str, object]) -> None:
    """Write JSON, which is valid YAML, to a file that only its owner can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=2)
    Path(path).chmod(0o600)  # os.open does not change the mode of an existing file


def _data(file: Path) -> str:
    return b64encode(file.read_bytes()).decode("ascii")
