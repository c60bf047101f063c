"""Certificates for cases with TLS, made by the command `openssl`."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

CONFIG = """
[ca]
default_ca = ca
[ca]
dir = {dir}
database = $dir/index
serial = $dir/serial
new_certs_dir = $dir
default_md = sha256
policy = policy
unique_subject = no
copy_extensions = none
[policy]
commonName = supplied
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical,CA:true
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
[leaf]
basicConstraints = critical,CA:false
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth,clientAuth
subjectAltName = {names}
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""
HERE = "IP:127.0.0.1,DNS:localhost"


class Pair(NamedTuple):
    """The files of a certificate and of its key."""

    certificate: Path
    key: Path


class Authority:
    """An authority in a folder of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder / name
        self._folder.mkdir()
        (self._folder / "index").touch()
        (self._folder / "serial").write_text("1000\n")
        self.certificate = self._folder / "ca.pem"
        self._config(HERE)
        self._openssl(
            "req", "-x509", "-new", *_new_key("ca-key.pem"), "-days", "3650", "-subj",
            f"/CN={name}", "-config", "config", "-extensions", "authority", "-out", "ca.pem",
        )  # fmt: skip

    def issue(self, name: str, names: str = HERE, begin: str = "", end: str = "") -> Pair:
        """Makes a certificate for these names, valid for a year, or from `begin` to `end`."""
        self._config(names)
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}-key.pem")
        self._openssl(
            "req", "-new", *_new_key(pair.key.name), "-subj", f"/CN={name}",
            "-config", "config", "-out", f"{name}.csr",
        )  # fmt: skip
        validity = ["-startdate", begin, "-enddate", end] if begin else ["-days", "365"]
        self._openssl(
            "ca", "-batch", "-notext", "-config", "config", "-cert", "ca.pem", "-keyfile",
            "ca-key.pem", "-extensions", "leaf", *validity, "-in", f"{name}.csr",
            "-out", pair.certificate.name,
        )  # fmt: skip
        return pair

    def _config(self, names: str) -> None:
        config = CONFIG.format(dir=".", names=names)
        (self._folder / "config").write_text(config)

    def _openssl(self, *words: str) -> None:
        done = subprocess.run(
            ["openssl", *words], cwd=self._folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"openssl {words[0]}: {done.stderr.strip()}")


def _new_key(name: str) -> list[str]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", name]


class Certificates:
    """The certificates of a run."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder, "authority")
        self.stranger = Authority(folder, "stranger")
        self.node = self.authority.issue("node")
        self.elsewhere = self.authority.issue("elsewhere", "DNS:node-2.example")
        self.expired = self.authority.issue("expired", HERE, "20010101000000Z", "20020101000000Z")
        self.early = self.authority.issue("early", HERE, "20480101000000Z", "20490101000000Z")
        self.client = self.authority.issue("client", "DNS:client")
        self.strange_client = self.stranger.issue("strange-client", "DNS:client")


def is_available() -> bool:
    return shutil.which("openssl") is not None


def server_context(pair: Pair, clients: Authority | None = None) -> ssl.SSLContext:
    """TLS of a node. With an authority of clients, these need a certificate of it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(pair.certificate, pair.key)
    context.set_alpn_protocols(["h2", "http/1.1"])
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients.certificate)
    return context
