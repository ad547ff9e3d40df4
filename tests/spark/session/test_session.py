"""The environment that a session gives the JVM; none is started."""

from __future__ import annotations

import os

import pytest

from waterclock.spark.session.session import _have_unicode_names

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
