"""A private certificate authority for nodes and edges on several machines.

| file | what | who needs it |
|---|---|---|
| DIR/ca.crt | the authority's certificate | every node and edge |
| DIR/ca.key | the authority's key: who has it can join | nobody but who makes certificates |
| DIR/NAME.crt, DIR/NAME.key | of one node or edge | that one |

Every certificate serves both ends of a connection: a node answers edges and calls other nodes.
Revocation is a new authority.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tenantry_runtime.errors import ConfigurationError

from .tls import TlsFiles

CA_DAYS = 3650
CERTIFICATE_DAYS = 825
"""The longest that TLS stacks of all systems accept."""

CLOCK_SKEW = datetime.timedelta(hours=1)
"""Machines whose clocks are behind by less accept a new certificate."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_CA_NAME = "ca"


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_certificate(
    folder: Path, name: str, hosts: Sequence[str] = (), *, now: datetime.datetime | None = None
) -> TlsFiles:
    """Make key and certificate of a node or an edge, and the authority if the folder has none.

    `hosts` are what others call it by: DNS names or IP addresses; the name itself is one of them.
    Raises `ConfigurationError` where a file is in the way or unusable.
    """
    if not _NAME.fullmatch(name) or name == _CA_NAME:
        raise ConfigurationError(
            f"{name!r} is no name for a certificate: letters, digits, '.', '-' and '_', not 'ca'"
        )
    now = now or datetime.datetime.now(datetime.UTC)
    paths = folder / f"{name}.crt", folder / f"{name}.key"
    for path in paths:
        if path.exists():
            raise ConfigurationError(f"{path} exists; remove it to make a new one")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = _authority(folder, now)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _signed(authority, key, name, hosts, now)
        _write_key(paths[1], key)
        _write(paths[0], certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: {error.strerror}") from error
    return TlsFiles(ca=str(folder / "ca.crt"), certificate=str(paths[0]), key=str(paths[1]))


def _authority(folder: Path, now: datetime.datetime) -> _Authority:
    certificate_path, key_path = folder / "ca.crt", folder / "ca.key"
    if not certificate_path.exists() and not key_path.exists():
        _make_authority(certificate_path, key_path, now)
    try:
        certificate = x509.load_pem_x509_certificate(certificate_path.read_bytes())
        key = serialization.load_pem_private_key(key_path.read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"{folder}: ca.crt or ca.key is unusable: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigurationError(f"{key_path} is no key of an elliptic curve")
    if key.public_key() != certificate.public_key():
        raise ConfigurationError(f"{key_path} is not the key of {certificate_path}")
    return _Authority(certificate, key)


def _make_authority(certificate_path: Path, key_path: Path, now: datetime.datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _named("tenantry private CA")
    certificate = (
        _builder(name, name, key, now, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    _write_key(key_path, key)
    _write(certificate_path, certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _signed(
    authority: _Authority,
    key: ec.EllipticCurvePrivateKey,
    name: str,
    hosts: Sequence[str],
    now: datetime.datetime,
) -> x509.Certificate:
    alternatives = [_alternative(host) for host in dict.fromkeys([name, *hosts])]
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    return (
        _builder(_named(name), authority.certificate.subject, key, now, CERTIFICATE_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(issuer_key, critical=False)
        .sign(authority.key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
    num_days: int,
) -> x509.CertificateBuilder:
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + datetime.timedelta(days=num_days))
        .add_extension(identifier, critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise ConfigurationError(f"{host!r} is neither a DNS name nor an IP address") from error


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    _write(path, pem, 0o600)


def _write(path: Path, content: bytes, mode: int) -> None:
    # never readable by others, not even for a moment
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "wb") as file:
        file.write(content)
