"""Names of topics that are the same but for dots and underscores: names of metrics could not tell them apart.

Rule 1: looked up, not searched for: whoever asks for thousands of topics by name asks this for each.
"""

from __future__ import annotations


class Namesakes:
    """The names that are taken.

    >>> taken = Namesakes()
    >>> taken.add("a.b"), taken.of("a_b"), taken.of("a.b"), taken.of("ab")
    (None, 'a.b', None, None)
    """

    def __init__(self) -> None:
        self._names: dict[str, dict[str, None]] = {}

    def add(self, name: str) -> None:
        self._names.setdefault(name.replace(".", "_"), {})[name] = None

    def remove(self, name: str) -> None:
        plain = name.replace(".", "_")
        names = self._names.get(plain, {})
        names.pop(name, None)
        if not names:
            self._names.pop(plain, None)

    def of(self, name: str) -> str | None:
        """Another name like this one, if there is one."""
        return next((other for other in self._names.get(name.replace(".", "_"), ()) if other != name), None)
