"""Certificates of a test: an authority, and what it issues."""

import datetime as dt
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization


class Authority:
    """A certificate authority that writes PEM files into `folder`.

    Attributes:
        file: its own certificate, which clients trust.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._ca = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.file = folder / "authority.pem"
        self._ca.cert_pem.write_to_path(self.file)

    def issue(
        self,
        name: str,
        *names: str,
        common_name: str | None = None,
        not_after: dt.datetime | None = None,
    ) -> tuple[Path, Path]:
        """Files of a certificate for `names`, and of its key; `name` is theirs."""
        leaf = self._ca.issue_cert(
            *names, common_name=common_name, not_after=not_after, key_type=trustme.KeyType.ECDSA
        )
        chain, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        chain.write_bytes(b"".join(each.bytes() for each in leaf.cert_chain_pems))
        leaf.private_key_pem.write_to_path(key)
        return chain, key

    def revoke(self, certificate: Path) -> Path:
        """File of a revocation list that names `certificate`."""
        revoked = x509.load_pem_x509_certificate(certificate.read_bytes())
        now = dt.datetime.now(dt.UTC)
        entry = x509.RevokedCertificateBuilder(revoked.serial_number, now).build()
        own = x509.load_pem_x509_certificate(self._ca.cert_pem.bytes())
        builder = x509.CertificateRevocationListBuilder(
            own.subject, now, now + dt.timedelta(days=1), [], [entry]
        )
        key = serialization.load_pem_private_key(self._ca.private_key_pem.bytes(), None)
        file = self._folder / "revocations.pem"
        signed = builder.sign(key, hashes.SHA256())
        file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        return file
