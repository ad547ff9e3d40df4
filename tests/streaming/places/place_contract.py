"""What is promised of a place, wherever it lies: a folder of this machine, or one behind a URI."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from waterclock.streaming.places.hadoop import HadoopPath
from waterclock.streaming.places.place import Place, copy_folder, make_folder, names_in, remove, write_whole, written_ms

STRANGE = ["a b", "é", "100%", "a%20b", "x, y", "[1]", "a;b=c", "path=z; isDirectory=true"]


class PlaceContract:
    """The suite; `place` is a folder that is not there yet."""

    def test_what_is_not_there_is_not_there(self, place: Place) -> None:
        assert (place.exists(), place.is_dir(), place.is_file(), names_in(place)) == (False, False, False, [])
        with pytest.raises(FileNotFoundError):
            (place / "a").read_bytes()
        with pytest.raises(FileNotFoundError):
            written_ms(place / "a")

    def test_a_file_is_written_whole_and_replaced_whole(self, place: Place) -> None:
        make_folder(place)
        for text in ("first", "", "é" * 100_000):
            write_whole(place / "a", text.encode())
            assert (place / "a").read_text() == text
        assert ((place / "a").is_file(), (place / "a").is_dir(), place.is_dir()) == (True, False, True)
        assert names_in(place) == ["a"]

    def test_a_folder_lists_names_of_any_kind(self, place: Place) -> None:
        make_folder(place / "in" / "deep")
        for name in STRANGE:
            write_whole(place / "in" / name, name.encode())
        assert sorted(names_in(place / "in")) == sorted([*STRANGE, "deep"])
        assert sorted(each.name for each in (place / "in").iterdir()) == sorted([*STRANGE, "deep"])
        assert [(place / "in" / name).read_text() for name in STRANGE] == STRANGE

    def test_what_is_removed_is_gone_with_all_that_is_in_it(self, place: Place) -> None:
        make_folder(place / "in")
        write_whole(place / "in" / "a", b"a")
        write_whole(place / "b", b"b")
        remove(place / "b")
        remove(place / "in")
        assert names_in(place) == []

    def test_a_folder_is_copied_with_all_that_is_in_it(self, place: Place) -> None:
        make_folder(place / "in" / "empty")
        make_folder(place / "in" / "deep")
        for name in STRANGE:
            write_whole(place / "in" / "deep" / name, name.encode())
        copy_folder(place / "in", place / "out")
        assert sorted(names_in(place / "out" / "deep")) == sorted(STRANGE)
        assert [(place / "out" / "deep" / name).read_text() for name in STRANGE] == STRANGE
        assert sorted(names_in(place / "in")) == ["deep", "empty"]

    def test_a_later_file_is_not_older(self, place: Place) -> None:
        make_folder(place)
        write_whole(place / "a", b"")
        write_whole(place / "b", b"")
        assert 1_700_000_000_000 < written_ms(place / "a") <= written_ms(place / "b")


class RemoteContract(PlaceContract):
    """What is promised beyond that behind a URI."""

    def test_a_file_that_is_there_is_not_made_again(self, place: HadoopPath) -> None:
        place.make_folder()
        assert [(place / "a").create_new(text) for text in (b"first", b"second")] == [True, False]
        assert ((place / "a").read_bytes(), names_in(place)) == (b"first", ["a"])

    def test_a_listing_tells_folders_and_times_apart(self, place: HadoopPath) -> None:
        make_folder(place / "path=z; isDirectory=false")
        for name in STRANGE:
            write_whole(place / name, b"")
        found = {entry.name: entry for entry in place.entries()}
        assert [name for name, entry in found.items() if entry.is_folder] == ["path=z; isDirectory=false"]
        assert [found[name].written_ms for name in STRANGE] == [written_ms(place / name) for name in STRANGE]


class ServerContract(RemoteContract):
    """What only a server promises: it decides between two at once. (On file:, Java looks first and renames then.)"""

    def test_of_many_that_make_one_file_at_once_one_does(self, place: HadoopPath) -> None:
        place.make_folder()
        with ThreadPoolExecutor(6) as pool:
            for number in range(5):
                file = place / str(number)
                made = list(pool.map(lambda one, file=file: file.create_new(b"%d" % one * 1000), range(6)))
                winner = made.index(True)
                assert (made.count(True), file.read_bytes()) == (1, b"%d" % winner * 1000)
        assert place.exists()
        assert sorted(names_in(place)) == list("01234")
