import ssl
from pathlib import Path

import pytest

from navarchos.testing.controlplane.credentials import Authority, KeyPair, make_signing_keys

x509 = pytest.importorskip("cryptography.x509")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def server_context(authority: Authority, pair: KeyPair) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    context.load_verify_locations(authority.files.certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    return strict(context)


def client_context(authority: Authority, pair: KeyPair) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.files.certificate))
    context.load_cert_chain(pair.certificate, pair.key)
    return strict(context)


def strict(context: ssl.SSLContext) -> ssl.SSLContext:
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    return context


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """Connect client and server in memory and return the server's end."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    left = client.wrap_bio(to_client, to_server, server_hostname=host)
    right = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for end in (left, right):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return right


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_server_and_client_trust_each_other(authority: Authority, host: str) -> None:
    server = authority.issue_server("server", ["127.0.0.1", "localhost"])
    client = authority.issue_client("client", "system:admin", ["system:masters", "others"])
    end = shake_hands(server_context(authority, server), client_context(authority, client), host)
    certificate = end.getpeercert()
    assert certificate is not None
    subject = [pair for name in certificate["subject"] for pair in name]
    assert subject == [
        ("organizationName", "system:masters"),
        ("organizationName", "others"),
        ("commonName", "system:admin"),
    ]


def test_a_server_is_not_trusted_under_another_name(authority: Authority) -> None:
    server = authority.issue_server("server", ["127.0.0.1"])
    client = authority.issue_client("client", "anyone")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(
            server_context(authority, server), client_context(authority, client), "example.com"
        )


def test_another_control_plane_is_not_trusted(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    server = authority.issue_server("server", ["127.0.0.1"])
    client = other.issue_client("client", "system:admin", ["system:masters"])
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server_context(authority, server), client_context(other, client), "127.0.0.1")


def test_signing_keys_are_a_pair(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import (
        load_pem_private_key,
        load_pem_public_key,
    )

    pair = make_signing_keys(tmp_path, "service-accounts")
    private = load_pem_private_key(pair.key.read_bytes(), None)
    public = load_pem_public_key(pair.certificate.read_bytes())
    assert private.public_key() == public
