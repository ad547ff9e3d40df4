"""The programs of examples/timers: an asyncio server, a game loop, a simulator and a suite of tests, each run."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from examples.timers import game_loop, idle_server, sessions, simulator

from waterclock import AsyncTimer, ManualClock

ROOT = Path(__file__).parents[2]

# The server


def test_the_servers_story_closes_who_is_silent_and_nobody_else(capsys: pytest.CaptureFixture[str]) -> None:
    idle_server.main([])
    assert capsys.readouterr().out.splitlines() == [
        "after 20 s: STILL HERE AT 20",
        "after 40 s: STILL HERE AT 40",
        "after 60 s: STILL HERE AT 60",
        "silent: nothing and closed as idle: 1",
    ]


def test_a_connection_that_ends_leaves_no_timer() -> None:
    async def connected(timer: AsyncTimer) -> int:
        served = idle_server.IdleServer(timer)
        ended = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await served.serve(reader, writer)
            ended.set()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            client = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
            assert await idle_server.said(client, "hello\n") == "HELLO"
            assert len(timer) == 1
            client[1].close()
            await asyncio.wait_for(ended.wait(), 20)
        return len(timer)

    with AsyncTimer(clock=ManualClock()) as timer:
        assert asyncio.run(connected(timer)) == 0


# The service


def test_a_day_of_the_service_is_over_at_once_and_its_times_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    sessions.main()
    assert capsys.readouterr().out.splitlines() == [
        "24 hours: 23 renewed, 121 visits, 4 told, 13 saved, 3 hung up, 3 forgotten",
        "on the disk: {'Ann': 60, 'Bob': 1}",
    ]


def test_the_pages_of_a_visitor_are_saved_when_he_is_quiet_and_while_he_is_not() -> None:
    with AsyncTimer(clock=ManualClock()) as timer:
        service = sessions.Service(timer, seed=1)
        for _ in range(25):
            service.visit("Ann", "news")
            timer.advance(1)
        assert service.saved == {"Ann": 20}  # after 10 seconds and after 20: the visit of that moment comes behind
        timer.advance(2)
        assert (service.saved, service.done["told"]) == ({"Ann": 25}, 1)


# The game


def test_the_same_moves_are_the_same_game_by_any_clock() -> None:
    clock = ManualClock()
    told = game_loop.play(clock)
    assert clock.monotonic_s() == pytest.approx(6)
    assert told == game_loop.play(ManualClock(1_000.0))
    assert told == [
        " 0.02 s  Bob is hurt by Ann's fireball: 20 left",
        " 1.02 s  Bob is hurt by poison: 18 left",
        " 2.02 s  Ann may throw again",
        " 2.02 s  Bob is hurt by poison: 16 left",
        " 2.50 s  Bob is hurt by Ann's fireball: 11 left",
        " 3.02 s  Bob is hurt by poison: 9 left",
        " 4.02 s  Bob is hurt by poison: 7 left",
        " 4.50 s  Ann may throw again",
        " 5.00 s  Bob is hurt by Ann's fireball: 2 left",
        " 5.02 s  Bob is hurt by poison: 0 left",
        " 5.02 s  Bob is gone",
    ]


def test_what_ends_a_life_cancels_its_effects() -> None:
    world = game_loop.World()
    hero = game_loop.Hero(world, "Ann", life=1)
    hero.poison()
    hero.shield()
    hero.hurt(9, "a wall")
    assert (hero.life, len(world.wheel)) == (0, 0)


# The simulator


@pytest.mark.parametrize("seed", range(5))
def test_customers_summed_over_time_are_their_times_summed(seed: int) -> None:
    shop = simulator.Shop(seed, every_s=60, served_in_s=50, patience_s=600)
    day = shop.day()
    assert day.inside_summed == day.times_summed > 0
    assert len(shop.wheel) == 0
    assert shop.wheel.statistics().cancelled == day.served  # the patience of each who was served


def test_the_same_seed_is_the_same_day_and_says_which_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    simulator.main(["3"])
    simulator.main(["3"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == lines[3:]
    assert lines[0].startswith("seed 3: ")


# The suite


def test_the_suite_turns_days_by_hand_and_passes() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "examples/timers"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout
