"""What is not believed is not removed: the folder is set aside whole, that is said, and its messages can be read."""

from __future__ import annotations

import logging
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from tests.relay.store.stores import DAY, NOON, US, Date, append, checkpoint, settle, value
from waterclock.errors import UsageError
from waterclock.relay.store import Identity, PartitionStore
from waterclock.relay.store.folder import Salvage

OTHERS = Identity("relay", "J8iNnLwT", 1)


def written(folder: Path, identity: Identity = US) -> Path:
    """A folder with three messages, of which one was fired, and one more that no checkpoint named."""
    with PartitionStore(folder, identity, Date()) as store:
        store.begin(0)
        append(store, [(0, NOON), (1, NOON), (2, NOON + 5 * DAY)], id=b"cart-17")
        settle(store, 0)
        checkpoint(store, 3)
        append(store, [(3, NOON)])
    return store.folder


def flip(path: Path, at: int = -3) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def put_another_partitions_there(folder: Path) -> None:
    other = written(folder.parent.parent / "others", OTHERS)
    shutil.rmtree(folder)
    shutil.copytree(other, folder)


def journal(folder: Path) -> Path:
    return next(folder.glob("*.journal"))


def of_a_later_version(folder: Path) -> None:
    path = folder / "manifest"
    line = path.read_bytes().partition(b"\n")[0].replace(b'"format":2', b'"format":3')
    path.write_bytes(b"%s\n%08x\n" % (line, zlib.crc32(line)))


TABLE: dict[str, tuple[Callable[[Path], object], str, str, set[int]]] = {
    # what was done to the folder -> why it is not believed, how many it says it holds, which can be read
    "manifest damaged": (lambda folder: flip(folder / "manifest"), "its checksum is wrong", "up to 4", {1, 2, 3}),
    "manifest gone": (lambda folder: (folder / "manifest").unlink(), "no manifest", "up to 4", {0, 1, 2, 3}),
    "journal damaged": (lambda folder: flip(journal(folder), 40), "its checksum is wrong", "up to 4", {0, 1, 2, 3}),
    "index gone": (lambda folder: max(folder.glob("*.index")).unlink(), "cannot be read", "up to 3", {1, 3}),
    "another partition's": (put_another_partitions_there, "the files are those of", "up to 4", {1, 2, 3}),
    "a later version's": (of_a_later_version, "are of format 3", "up to 4", {1, 2, 3}),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE)
def test_files_that_are_not_believed_are_set_aside_as_they_were_found_and_said(
    case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deed, why, count, readable = TABLE[case]
    folder = written(tmp_path / "relay")
    deed(folder)
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    with PartitionStore(tmp_path / "relay", US, Date()) as store:
        assert why in (store.rebuilt or "")
        assert (store.pending, [path.name for path in folder.iterdir()]) == (0, ["lock"])
    (aside,) = folder.parent.glob("*.aside.20260601T120000Z.*")
    kept = {path.name: path.read_bytes() for path in aside.iterdir()}
    assert why in kept.pop("why").decode()
    assert kept == found
    assert f"with {count} messages" in caplog.text
    assert f"waterclock relay files {aside}" in caplog.text
    assert {saved.origin for saved in Salvage(aside).messages()} == readable


def test_a_message_of_a_folder_that_was_set_aside_is_read_as_it_was_sent(tmp_path: Path) -> None:
    salvage = Salvage(written(tmp_path))
    assert salvage.is_known
    saved = {one.origin: one for one in salvage.messages()}[2]
    assert (saved.due_ms, saved.topic) == (NOON + 5 * DAY, "reminders")
    assert (saved.payload.value, saved.payload.key) == (value(2, NOON + 5 * DAY), b"key")


def test_a_message_that_is_damaged_is_counted_and_the_others_are_read(tmp_path: Path) -> None:
    folder = written(tmp_path)
    flip(max(folder.glob("*.data")))
    salvage = Salvage(folder)
    assert ([saved.origin for saved in salvage.messages()], salvage.damaged) == ([1, 3], 1)


def test_a_folder_without_messages_is_none_to_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder of a relay's partition"):
        Salvage(tmp_path)


def test_files_without_a_message_are_removed(tmp_path: Path) -> None:
    with PartitionStore(tmp_path, US, Date()) as store:
        append(store, [(0, NOON)])
        settle(store, 0)
        checkpoint(store, 1)
        store.set_aside("a test wants it", None)
    assert [path.name for path in tmp_path.iterdir()] == [US.folder_name()]


def test_of_those_that_the_log_holds_too_the_last_one_is_kept_and_of_others_each(tmp_path: Path) -> None:
    """A disk that lies would be filled by what nobody needs; what may be a last copy is for somebody to remove."""
    clock = Date()
    with PartitionStore(tmp_path, US, clock) as store:
        for begins in (5, 0, None, 5, 0, 0):
            append(store, [(3, NOON)])
            clock.advance_s(1)
            store.set_aside("a test wants it", begins)
    kinds = sorted(path.name.removeprefix(f"{US.folder_name()}.")[:21] for path in tmp_path.iterdir())
    assert kinds == [*(f"aside.20260601T12000{n}" for n in (1, 3, 4)), US.folder_name()[:21], "spare.20260601T120006"]


def test_what_was_filed_behind_the_last_checkpoint_is_kept_where_the_log_is_cut_off_behind_that(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    written(tmp_path)
    with PartitionStore(tmp_path, US, Date()) as store:
        store.skip_to(9)
        append(store, [(9, NOON)])
        checkpoint(store, 10)
        assert store.pending == 3
    (aside,) = tmp_path.glob("*.aside.*")
    assert {saved.origin for saved in Salvage(aside).messages()} == {1, 2, 3}
    assert str(aside) in caplog.text


def test_what_is_settled_of_a_log_that_was_cut_off_unread_is_remembered_for_its_copy(tmp_path: Path) -> None:
    """The story: origin 5 was deleted before it was filed here; it was moved on to 11, and fired there. Were it taken for
    known, its copy would be pending, and delivered again."""
    written(tmp_path)
    with PartitionStore(tmp_path, US, Date()) as store:
        store.skip_to(9)
        settle(store, 5)
        assert len(append(store, [(5, NOON)])) == 0
        append(store, [(9, NOON)])
        checkpoint(store, 10)
        settle(store, 6)
        assert len(append(store, [(6, NOON)])) == 0
