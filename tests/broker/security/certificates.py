"""Certificates that tests make for brokers on 127.0.0.1."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def certificate(folder: Path, name: str = "IP:127.0.0.1") -> tuple[str, str]:
    """A certificate for the name, signed by itself, and its key: two files in the folder."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate, and is not there")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost -addext"
    made = ["openssl", *words.split(), f"subjectAltName={name}", "-keyout", key, "-out", cert]
    subprocess.run(made, check=True, capture_output=True)
    os.chmod(key, 0o600)
    return cert, key
