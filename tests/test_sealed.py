"""The checksummed record: what is written, what earlier versions wrote, and what is not believed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from waterclock.disk import read_sealed, sealed, unsealed, write_sealed

VALUE = {"start": 17, "writes": 1}
WITH_CRC32C = b'{"start":17,"writes":1}\n6a52f8ba\n'  # as brokers wrote it before there was one record


def test_what_a_broker_wrote_with_the_other_checksum_is_read(tmp_path: Path) -> None:
    pytest.importorskip("crc32c")
    (tmp_path / "old").write_bytes(WITH_CRC32C)
    assert read_sealed(str(tmp_path / "old")) == VALUE


def test_who_lacks_the_other_checksum_takes_that_file_for_damaged_and_reads_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "crc32c", None)
    assert unsealed(sealed(VALUE)) == VALUE
    with pytest.raises(ValueError, match="checksum"):
        unsealed(WITH_CRC32C)


def test_a_file_is_believed_at_its_whole_length_alone(tmp_path: Path) -> None:
    write_sealed(str(tmp_path / "new"), VALUE)
    whole = (tmp_path / "new").read_bytes()
    assert read_sealed(str(tmp_path / "new")) == VALUE
    for data in (*(whole[:n] for n in range(len(whole))), whole + b"\n", WITH_CRC32C.replace(b"17", b"18")):
        with pytest.raises(ValueError, match="checksum"):
            unsealed(data)


def test_the_manifest_of_a_relays_files_is_read_as_earlier_versions_wrote_it(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    from waterclock.relay.store import Identity, manifest

    (tmp_path / manifest.NAME).write_bytes(
        b'{"format":2,"identity":{"group":"relay","topic_id":"J8iNnLwT","partition":2},"next":7}\n35961ab4\n'
    )
    stored = manifest.read(tmp_path, Identity("relay", "J8iNnLwT", 2))
    assert stored is not None
    assert stored["next"] == 7
