"""The environment that a session gives the JVM, and settings of its own for a query; none is started."""

from __future__ import annotations

import os

import pytest

from waterclock.spark.session.session import _have_unicode_names, interpreted

NAMES = ("LC_ALL", "LC_CTYPE", "LANG")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, False),
        ({"LC_ALL": "C"}, False),
        ({"LC_ALL": "POSIX", "LANG": "en_US.UTF-8"}, False),
        ({"LANG": "de_DE.ISO-8859-1"}, False),
        ({"LANG": "de_DE.utf8@euro"}, True),
        ({"LC_CTYPE": "C.UTF-8"}, True),
        ({"LC_ALL": "", "LC_CTYPE": "en_US.UTF-8", "LANG": "C"}, True),
    ],
)
def test_a_locale_stays_where_it_knows_all_letters_and_is_another_one_elsewhere(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], kept: bool
) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LC_ALL", given.get("LC_ALL", ""))  # so that it is as it was afterwards
    _have_unicode_names()
    assert os.environ["LC_ALL"] == (given.get("LC_ALL", "") if kept else "C.UTF-8")


class Settings(dict[str, str]):
    """A session's settings."""

    @property
    def conf(self) -> Settings:
        return self

    def set(self, name: str, value: str) -> None:
        self[name] = value

    def unset(self, name: str) -> None:
        del self[name]


def test_a_query_that_starts_interpreted_leaves_the_session_as_it_is_and_what_the_user_set() -> None:
    whole, factory = "spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode"
    for given in ({}, {whole: "true"}, {factory: "CODEGEN_ONLY", "other": "x"}):
        session = Settings(given)
        with interpreted(session):  # type: ignore[arg-type]
            assert session == {whole: "false", factory: "NO_CODEGEN", **given}
        assert session == given
