"""Certificate authorities and certificates, created with openssl, for tests of TLS."""

import pathlib

from switches import run


class Authority:
    """A certificate authority, in a folder."""

    def __init__(self, folder, name):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.key, self.certificate = self.folder / f"{name}-ca.key", self.folder / f"{name}-ca.pem"
        run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", self.key, "-out", self.certificate,
            "-days", "2", "-subj", f"/CN={name}")

    def sign(self, name, alternative="IP:127.0.0.1"):
        """Creates a key and a certificate for a name, and returns (key file, certificate file)."""
        key, certificate, request = (self.folder / f"{name}.{end}" for end in ("key", "pem", "csr"))
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternative}\n")
        run("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        run("openssl", "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial",
            "-out", certificate, "-days", "2", "-extfile", extensions)
        return key, certificate


def tls_table(key, certificate, authority):
    """Returns the `tls` of a bridge."""
    return "\n".join([
        "[bridge.tls]", f'private_key = "{key}"', f'certificate = "{certificate}"',
        f'ca_certificate = "{authority.certificate}"',
    ])
