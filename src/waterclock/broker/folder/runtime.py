"""Settings that clients change while the broker runs: kept in the store, above those that it was started with.

    who said it                     source
    this broker, by a client        2
    every broker, by a client       3   the resource without a name; the same here, if there is one
    `--set` at the start            4
    nobody                          5
A topic's own word, source 1, goes before all of them. The topmost counts; a client may take its own away again.

Rule 1: what is changed holds at once, and is answered once it is durable; if the store refuses, it is taken back.
Rule 2: a name that the store has from another version and that is not known any more is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from waterclock.broker.folder.identity import NODE_ID
from waterclock.broker.settings import SETTINGS, TOPIC_SETTINGS, Settings, checked
from waterclock.broker.store import Store, Then

NAMESPACE: Final = "setting"
BY_TOPIC, BY_BROKER, BY_ALL, AT_START, BY_NOBODY = 1, 2, 3, 4, 5
ALL: Final = ""
DYNAMIC: Final = frozenset(
    {setting.name for setting in TOPIC_SETTINGS.values()}
    | {"log.cleaner.backoff.ms", "max.connections", "producer.id.expiration.ms"}
)


class ConfigEntry(NamedTuple):
    """What somebody said about a setting: under which name, which value, and the number of the source."""

    name: str
    text: str
    source: int


class RuntimeSettings:
    """`settings` with what clients have changed. `changed()` is called after each change."""

    def __init__(self, settings: Settings, store: Store, changed: Callable[[], None]) -> None:
        self.settings = settings
        self._store = store
        self._changed = changed
        self.this = str(settings[NODE_ID])
        self._static = dict(settings.given)
        self.levels: dict[str, dict[str, str]] = {ALL: {}, self.this: {}}
        self.levels.update(store.load(NAMESPACE))
        for name in DYNAMIC & {name for level in (ALL, self.this) for name in self.levels[level]}:
            self._apply(name)

    def words(self, name: str) -> list[ConfigEntry]:
        """All that is said about the setting `name`, what counts first."""
        said = (
            (self.levels[self.this].get(name), BY_BROKER),
            (self.levels[ALL].get(name), BY_ALL),
            (self._static.get(name), AT_START),
            (SETTINGS[name].default, BY_NOBODY),
        )
        return [ConfigEntry(name, text, source) for text, source in said if text is not None]

    def topic_words(self, name: str, given: Mapping[str, str]) -> list[ConfigEntry]:
        """All that is said about the topic's setting `name`, of a topic that has `given` of its own."""
        own = [ConfigEntry(name, given[name], BY_TOPIC)] if name in given else []
        return own + self.words(TOPIC_SETTINGS[name].name)

    def check(self, given: Mapping[str, str]) -> None:
        """UsageError if one of the values cannot be."""
        for name, text in given.items():
            checked(SETTINGS[name], name, text)

    def replace(self, level: str, given: Mapping[str, str], then: Then) -> None:
        """From now on a level says this, which was checked."""
        before = self.levels[level]
        self._hold(level, {name: text.strip() for name, text in given.items()})

        def kept(done: bool) -> None:
            if not done:
                self._hold(level, before)
            then(done)

        self._store.put(NAMESPACE, level, self.levels[level], kept)

    def _hold(self, level: str, given: dict[str, str]) -> None:
        before, self.levels[level] = self.levels[level], given
        for name in {**before, **given}:
            self._apply(name)
        self._changed()

    def _apply(self, name: str) -> None:
        first = self.words(name)[0]
        self.settings.set(name, None if first.source == BY_NOBODY else first.text)
