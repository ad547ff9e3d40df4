"""A game loop whose effects are timers: `python -m examples.timers.game_loop`.

The wheel counts frames, sixty a second, and nobody asks a clock inside of the world: a replay of the same moves is the same
game, a slow machine plays slower and never differently, and a pause is a wheel that is not turned.

    poison       hurts once a second, five times
    shield       halves what hurts, for three seconds; a second one begins anew
    fireball     may be thrown again after two seconds

Rule 1: an effect is a timer and nothing else. No frame looks at effects that are not due.
Rule 2: what ends a life cancels its effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from waterclock import SystemClock, TimingWheel
from waterclock.clock import Clock
from waterclock.wheel import TimerHandle

FRAMES_A_SECOND = 60
POISON_TIMES, POISON_HURTS = 5, 4
SHIELD_FRAMES = 3 * FRAMES_A_SECOND
FIREBALL_FRAMES = 2 * FRAMES_A_SECOND
Moves = Iterable[tuple[int, Callable[[], object]]]


class World:
    """The frame that is played, its timers, and what happened so far."""

    def __init__(self) -> None:
        self.wheel = TimingWheel()
        self.told: list[str] = []

    def play(self) -> None:
        """One frame: everything that is due in it."""
        self.wheel.advance(self.wheel.now + 1)

    def tell(self, what: str) -> None:
        """Write it down with its second."""
        self.told.append(f"{self.wheel.now / FRAMES_A_SECOND:5.2f} s  {what}")


class Hero:
    """Somebody with a life, and effects upon it."""

    def __init__(self, world: World, name: str, life: int = 30) -> None:
        self.world = world
        self.name = name
        self.life = life
        self._poison: TimerHandle | None = None
        self._shield: TimerHandle | None = None
        self._fireball: TimerHandle | None = None

    def poison(self, times: int = POISON_TIMES) -> None:
        """Hurt once a second, so many times."""
        if times and self.life > 0:
            self._poison = self.world.wheel.add(FRAMES_A_SECOND, self._hurt_by_poison, times)

    def shield(self) -> None:
        """For three seconds from now, also where one is up already."""
        if self._shield is None or not self._shield.reschedule(SHIELD_FRAMES):
            self._shield = self.world.wheel.add(SHIELD_FRAMES, self.world.tell, f"the shield of {self.name} is gone")

    def throw(self, at: Hero) -> bool:
        """A fireball; False while the last one is not long enough ago."""
        if self._fireball is not None and self._fireball.pending:
            return False
        self._fireball = self.world.wheel.add(FIREBALL_FRAMES, self.world.tell, f"{self.name} may throw again")
        at.hurt(10, f"{self.name}'s fireball")
        return True

    def hurt(self, points: int, by: str) -> None:
        """Half of it under a shield."""
        if self._shield is not None and self._shield.pending:
            points //= 2
        self.life = max(0, self.life - points)
        self.world.tell(f"{self.name} is hurt by {by}: {self.life} left")
        if not self.life:
            self._end()

    def _hurt_by_poison(self, times: int) -> None:
        self.hurt(POISON_HURTS, "poison")
        self.poison(times - 1)

    def _end(self) -> None:
        for effect in (self._poison, self._shield, self._fireball):
            if effect is not None:
                effect.cancel()
        self.world.tell(f"{self.name} is gone")


def run(world: World, clock: Clock, frames: int, moves: Moves) -> None:
    """Play so many frames, a sixtieth of a second each; `moves` are what players do, with the frame."""
    began_s = clock.monotonic_s()
    for frame in range(1, frames + 1):
        world.play()
        for when, move in moves:
            if when == frame:
                move()
        clock.sleep_s(max(0.0, began_s + frame / FRAMES_A_SECOND - clock.monotonic_s()))


def play(clock: Clock) -> list[str]:
    """The same six seconds each time."""
    world = World()
    ann, bob = Hero(world, "Ann"), Hero(world, "Bob")
    throw = partial(ann.throw, bob)
    moves = ((1, throw), (1, bob.poison), (60, bob.shield), (60, throw), (150, bob.shield), (150, throw), (300, throw))
    run(world, clock, 360, moves)
    return world.told


def main() -> None:
    print("\n".join(play(SystemClock())))


if __name__ == "__main__":
    main()
