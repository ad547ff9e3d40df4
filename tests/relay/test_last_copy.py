"""What a new owner makes of its files, by a table: whose they are, what proves it, and what happens if nothing does.

Whatever was done to the logs or the files, each message is delivered once, or it is said where it lies.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.relay.bystander import Beside, followed, until
from tests.relay.lapping import LAP_BYTES, fill, lapping, owner_of
from tests.relay.world import World, step_quietly, step_until
from waterclock.errors import UsageError
from waterclock.relay.relay import Relay
from waterclock.relay.store.folder import Salvage

FAR_MS = 86_400_000


def filed(world: World, *values: str, stop: Callable[[Relay], object]) -> Path:
    """A relay files these, and ends; its partition's folder."""
    relay = world.started()
    world.send(*values, in_ms=FAR_MS)
    step_quietly(relay)
    folder = owner_of(relay).store.folder
    stop(relay)
    return folder


def goes_on(world: World) -> list[str]:
    """What is delivered once it is due, by a relay that is started now."""
    relay = world.started()
    world.advance_ms(FAR_MS)
    step_until(lambda: not owner_of(relay).store.pending and owner_of(relay).has_caught_up, relay)
    step_quietly(relay)
    return world.values()


def made_again(world: World, topic: str) -> None:
    world.remove(topic)
    world.prepare()


def test_files_whose_log_begins_at_their_position_are_the_last_copy_and_are_used(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The story: somebody's retention deleted the input while the relay ran. It went on from its files. Started again it
    threw these away, since the record filed last was "not the one that was filed": it was not there any more."""
    filed(world, "a", "b", "c", stop=world.close)
    world.cut(3)
    assert goes_on(world) == ["a", "b", "c"]
    assert (
        "begins at offset 3: somebody deleted what was before. Of the 3 messages that are pending, 3 stand"
        in caplog.text
    )


def test_files_whose_log_begins_in_the_middle_of_them_are_used(world: World, caplog: pytest.LogCaptureFixture) -> None:
    filed(world, "a", "b", "c", stop=world.close)
    world.cut(2)
    world.send("d", in_ms=FAR_MS)
    assert goes_on(world) == ["a", "b", "c", "d"]
    assert "Of the 3 messages that are pending, 2 stand" in caplog.text


def test_files_whose_log_begins_behind_them_are_used_and_what_stands_in_neither_is_said(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    filed(world, "a", "b", stop=world.close)
    world.send("lost", "lost too", "c", in_ms=FAR_MS)
    world.cut(4)
    assert goes_on(world) == ["a", "b", "c"]
    assert "begins at offset 4, and the files hold it up to 2: what stood at the 2 offsets between" in caplog.text


def test_what_was_filed_and_in_no_checkpoint_is_kept_where_the_log_lost_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def crashed(relay: Relay) -> None:
        owner_of(relay).checkpoint()
        world.send("b", in_ms=FAR_MS)
        step_quietly(relay)
        world.crash(relay)

    folder = filed(world, "a", stop=crashed)
    world.cut(2)
    assert goes_on(world) == ["a"]
    (aside,) = folder.parent.glob("*.aside.*")
    assert {saved.payload.value for saved in Salvage(aside).messages()} == {b"a", b"b"}
    assert "up to 1: what stood at the 1 offsets between" in caplog.text


def test_files_that_are_newer_than_the_log_are_set_aside_and_the_log_is_delivered(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The log was restored from a backup: at its next offsets other messages will stand."""

    def newer(relay: Relay) -> None:
        owner_of(relay).store.checkpoint(9, owner_of(relay)._fingerprint, owner_of(relay).settled_position)
        world.crash(relay)

    folder = filed(world, "a", "b", stop=newer)
    assert goes_on(world) == ["a", "b"]
    (spare,) = folder.parent.glob("*.spare.*")
    assert [saved.payload.value for saved in Salvage(spare).messages()] == [b"a", b"b"]
    assert "hold" in caplog.text
    assert "and it ends at 2 now" in caplog.text


def test_files_of_another_log_are_set_aside_with_what_they_hold(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def other(relay: Relay) -> None:
        owner_of(relay).store.checkpoint(2, bytes(24), owner_of(relay).settled_position)
        world.crash(relay)

    folder = filed(world, "a", "b", stop=other)
    assert goes_on(world) == ["a", "b"]
    assert "is not the one that was filed. It is set aside, with 2 messages that the log has too" in caplog.text
    assert len(list(folder.parent.glob("*.spare.*"))) == 1


def test_damaged_files_that_were_the_last_copy_are_set_aside_and_that_is_said(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    folder = filed(world, "a", "b", stop=world.close)
    world.cut(2)
    (index,) = folder.glob("*.index")
    index.write_bytes(index.read_bytes()[:-1] + b"?")
    assert goes_on(world) == []
    (aside,) = folder.parent.glob("*.aside.*")
    assert "with 2 messages: what of these the log has no more is not delivered" in caplog.text
    assert f"waterclock relay files {aside}" in caplog.text


def test_settlements_that_are_lost_with_a_log_that_was_cut_off_are_no_reason_to_go_on(world: World) -> None:
    """The files are the last that know both what is pending and what was delivered."""

    def delivers_one(relay: Relay) -> None:
        world.send("now", in_ms=0)
        step_until(world.values, relay)
        step_quietly(relay)
        world.close(relay)

    folder = filed(world, "a", stop=delivers_one)
    world.cut(2)
    before = {path.name for path in folder.iterdir()}
    made_again(world, f"{world.topic}.settled")
    with pytest.raises(UsageError, match="does not hold what was settled"):
        world.started()
    assert {path.name for path in folder.iterdir()} == before


def test_the_files_of_a_topic_that_was_made_again_stay_and_each_start_says_so(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    folder = filed(world, "a", "b", stop=world.close)
    made_again(world, world.topic)
    world.started()
    assert f"{folder} is not read by this relay" in caplog.text
    assert len(list(Salvage(folder).messages())) == 2


def test_there_is_no_lap_while_the_files_are_the_last_copy(world: World) -> None:
    """It would say that the input has all that is pending; who begins without these files would believe it."""
    filed(world, "a", stop=world.close)
    world.cut(1)
    relay = lapping(world)
    fill(world, relay, 2 * LAP_BYTES // 100)
    step_quietly(relay)
    assert (relay._counts.laps, owner_of(relay).log_span.moves.swept) == (0, 0)
    world.advance_ms(FAR_MS)
    step_until(lambda: "a" in world.values(), relay)
    step_until(lambda: world.advance_ms(1_000) or relay._counts.laps, relay)


def test_what_is_followed_and_is_the_last_copy_makes_no_room(
    world: World, beside: Beside, caplog: pytest.LogCaptureFixture
) -> None:
    one = world.started("one")
    two = beside(one, is_beside=True)
    world.send("a", in_ms=FAR_MS)
    followed(one, two)
    two.follower.checkpoint()
    before = {path.name for path in two.follower.store.folder.iterdir()}
    folder = two.follower.store.folder
    world.cut(1)
    owner_of(one).disk.is_refusing = True
    until(lambda: not two.is_there, two)
    owner_of(one).disk.took()
    assert {path.name for path in folder.iterdir()} == before
    assert "stays: that may stand nowhere else" in caplog.text
