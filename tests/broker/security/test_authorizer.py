"""The authorizer without a broker: random ACLs and random questions beside a dumb computation, and its memory."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waterclock.broker.security import authorizer as module
from waterclock.broker.security.acls import (
    Acl,
    AclFilter,
    AclIndex,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    same_host,
)
from waterclock.broker.security.authorizer import EVERYTHING, NAMESPACE, Authorizer, Rights
from waterclock.broker.settings import AUTHORIZER, Settings
from waterclock.broker.store import Entry
from waterclock.errors import UsageError

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
HERE, THERE = "10.0.0.1", "10.0.0.2"
NAMES = ["".join(letters) for size in (1, 2, 3) for letters in itertools.product("abz", repeat=size)]


class MemoryStore:
    """A store without a disk; while `refusing`, what it is given is refused."""

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self.kept: dict[str, Any] = {acl.key(): {} for acl in acls}
        self.refusing = False

    def load(self, namespace: str) -> dict[str, Any]:
        return dict(self.kept)

    def commit(self, changes: Iterable[Entry], then: Any) -> None:
        for change in () if self.refusing else changes:
            assert change.namespace == NAMESPACE
            self.kept.pop(change.key, None)
            if change.value is not None:
                self.kept[change.key] = change.value
        then(not self.refusing)


def made(acls: Iterable[Acl] = (), **fields: Any) -> Authorizer:
    store: Any = MemoryStore(acls)
    return Authorizer(store, **fields)


def asker(principal: str | None = "a", host: str = HERE) -> Any:
    return SimpleNamespace(principal=principal, rights=None, peer=lambda: f"{host}:1")


def acl(name: str, operation: Operation = READ, permission: Permission = ALLOW, **fields: Any) -> Acl:
    return Acl(TOPIC, name, LITERAL, "User:a", "*", operation, permission)._replace(**fields)


# few values of each, so that ACLs meet each other and the questions
ACLS = st.lists(
    st.builds(
        Acl,
        st.sampled_from([TOPIC, TOPIC, GROUP]),
        st.sampled_from(["*", "a", "ab", "aba", "b"]),
        st.sampled_from([LITERAL, PREFIXED]),
        st.sampled_from(["User:a", "User:a", "User:*", "User:b", "Group:a"]),
        st.sampled_from(["*", "*", HERE, THERE]),
        st.sampled_from([READ, WRITE, DESCRIBE, Operation.ALTER, Operation.ALTER_CONFIGS, Operation.ALL]),
        st.sampled_from([ALLOW, ALLOW, DENY]),
    ),
    max_size=8,
)
QUESTIONS = list(
    itertools.product(
        "ab",
        (HERE, THERE),
        (READ, WRITE, DESCRIBE, Operation.DESCRIBE_CONFIGS),
        (TOPIC, GROUP),
        ("a", "ab", "abaz", "b", "z", "*"),
    )
)


def allows(acls: list[Acl], super_users: set[str], otherwise: bool, who: tuple[str, str], asked: Any) -> bool:
    """The rules, said once more, one after the other."""
    operation, kind, name = asked
    if who[0] in super_users:
        return True
    about = [one for one in acls if one.resource_type == kind and is_about(one, name)]
    if not about:
        return otherwise
    mine = [one for one in about if one.principal in (who[0], "User:*") and one.host in (who[1], "*")]
    denied = [one for one in mine if one.permission == DENY and one.operation in (operation, Operation.ALL)]
    implied = {
        Operation.DESCRIBE: {"READ", "WRITE", "DELETE", "ALTER"},
        Operation.DESCRIBE_CONFIGS: {"ALTER_CONFIGS"},
    }
    granting = {"ALL", operation.name} | implied.get(operation, set())
    granted = [one for one in mine if one.permission == ALLOW and Operation(one.operation).name in granting]
    return bool(granted) and not denied


def is_about(one: Acl, name: str) -> bool:
    if one.pattern_type == PREFIXED:
        return name[: len(one.name)] == one.name
    return one.name in ("*", name)


@given(ACLS, st.sets(st.sampled_from(["User:a", "User:b"]), max_size=1), st.booleans())
def test_it_decides_by_the_rules(acls: list[Acl], supers: set[str], otherwise: bool) -> None:
    authorizer = made(acls, super_users=supers, otherwise=otherwise)
    known: dict[Any, Rights] = {}
    for name, host, *asked in QUESTIONS:
        rights = known.setdefault((name, host), authorizer.rights(asker(name, host)))
        decided = allows(acls, supers, otherwise, (f"User:{name}", host), asked)
        assert rights.may(*asked) is decided
        assert rights.may(*asked) is decided  # remembered


@given(ACLS, st.booleans())
def test_rights_as_bits_are_what_is_decided_one_by_one(acls: list[Acl], otherwise: bool) -> None:
    rights = made(acls, otherwise=otherwise).rights(asker())
    for kind, name in itertools.product((TOPIC, GROUP), ("a", "ab", "z")):
        single = sum(1 << one for one in module.OPERATIONS[kind] if rights.may(one, kind, name))
        assert rights.operations(kind, name) == single


@given(ACLS, st.booleans())
def test_a_right_to_any_is_one_to_some_name_that_there_could_be(acls: list[Acl], otherwise: bool) -> None:
    rights = made(acls, otherwise=otherwise).rights(asker())
    there_could_be = [*NAMES, *(name + "z" for name in NAMES), "*", "*z"]
    some = any(allows(acls, set(), otherwise, ("User:a", HERE), (WRITE, TOPIC, name)) for name in there_could_be)
    assert rights.may(WRITE, TOPIC, None) is some


@given(ACLS, ACLS, st.sampled_from(NAMES))
def test_what_is_made_and_deleted_is_forgotten_everywhere(before: list[Acl], more: list[Acl], name: str) -> None:
    """The index holds the same as one that is made of what is left, and nothing is decided from memory."""
    authorizer = made(before)
    rights = authorizer.rights(asker())
    rights.may(READ, TOPIC, name)
    authorizer.create(more, lambda done: None)
    assert rights.may(READ, TOPIC, name) is allows(
        [*before, *more], set(), False, ("User:a", HERE), (READ, TOPIC, name)
    )
    authorizer.delete(before, lambda done: None)
    left = [one for one in more if one not in before]
    assert rights.may(READ, TOPIC, name) is allows(left, set(), False, ("User:a", HERE), (READ, TOPIC, name))
    fresh = AclIndex()
    fresh.replace(left)
    assert list(authorizer.acls) == list(fresh)
    assert authorizer.acls._about == fresh._about
    assert {kind: some for kind, some in authorizer.acls._lengths.items() if some} == fresh._lengths
    assert set(map(Acl.of, authorizer._store.load(NAMESPACE))) == set(left)


@given(ACLS, st.sampled_from([*NAMES, "*"]))
def test_a_filter_that_matches_a_name_finds_what_is_about_it(acls: list[Acl], name: str) -> None:
    index = AclIndex()
    index.replace(acls)
    wanted = AclFilter(TOPIC, name, PatternType.MATCH, None, None, Operation.ANY, Permission.ANY)
    assert {one for one in index if wanted.matches(one)} == set(index.about(TOPIC, name))


def test_what_the_store_refuses_is_not_held() -> None:
    authorizer = made()
    store: Any = authorizer._store
    store.refusing = True
    said: list[bool] = []
    authorizer.create([acl("t")], said.append)
    assert said == [False]
    assert len(authorizer.acls) == 0
    assert not authorizer.rights(asker()).may(READ, TOPIC, "t")


def test_somebody_who_did_not_say_who_it_is_is_anonymous() -> None:
    authorizer = made([acl("t", principal="User:ANONYMOUS")])
    assert authorizer.rights(asker(None)).may(READ, TOPIC, "t")
    assert not authorizer.rights(asker("a")).may(READ, TOPIC, "t")


def test_an_address_is_one_however_it_is_written() -> None:
    authorizer = made([acl("t", host="0:0:0:0:0:0:0:1"), acl("u", host=HERE)])
    assert authorizer.rights(asker(host="::1")).may(READ, TOPIC, "t")
    assert authorizer.rights(asker(host=f"::ffff:{HERE}")).may(READ, TOPIC, "u")
    assert [same_host(one) for one in ("*", "example.org", "")] == ["*", "example.org", ""]


def test_decisions_are_remembered_and_not_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    authorizer = made([acl("t")])
    asked: list[str] = []
    real = authorizer.allows
    monkeypatch.setattr(authorizer, "allows", lambda *words: asked.append(words[-1]) or real(*words))
    monkeypatch.setattr(module, "MOST_REMEMBERED", 3)
    rights = authorizer.rights(asker())
    for _ in range(3):
        assert rights.may(READ, TOPIC, "t")
    assert asked == ["t"]
    for name in "abc":
        assert not rights.may(READ, TOPIC, name)
    assert len(rights._known) <= 3


@pytest.mark.parametrize("key", ["", "[]", "[1,2,3,4,5,6,7,8]", "{"])
def test_an_acl_that_cannot_be_read_is_an_error(key: str) -> None:
    store: Any = MemoryStore()
    store.kept[key] = {}
    with pytest.raises(UsageError, match="cannot be read"):
        Authorizer(store)


def test_connections_of_one_client_share_what_is_remembered() -> None:
    authorizer = made([acl("t")])
    one = authorizer.rights(asker())
    assert authorizer.rights(asker()) is one
    assert authorizer.rights(asker(host=THERE)) is not one
    assert authorizer.rights(asker("b")) is not one
    del one
    assert len(authorizer._rights) == 0


def test_a_refusal_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "waterclock.broker.authorizer")
    rights = made([acl("t")]).rights(asker())
    for name in ("t", "u", "u"):
        rights.may(READ, TOPIC, name)
    assert caplog.messages == ["'User:a' from 10.0.0.1 may not READ TOPIC 'u'"]


def test_the_bits_of_everything_are_the_protocol_s() -> None:
    assert EVERYTHING == {TOPIC: 3576, GROUP: 3400, ResourceType.CLUSTER: 8096}


def test_settings_choose_it() -> None:
    store: Any = MemoryStore()
    assert Authorizer.of(Settings(), store) is None
    given = {"authorizer.class.name": AUTHORIZER, "super.users": "User:a; User:b b;"}
    authorizer = Authorizer.of(Settings(given), store)
    assert authorizer is not None
    assert authorizer.rights(asker("b b")).may(READ, TOPIC, "t")
    assert not authorizer.rights(asker("c")).may(READ, TOPIC, "t")
    open_one = Authorizer.of(Settings({**given, "allow.everyone.if.no.acl.found": "true"}), store)
    assert open_one is not None
    assert open_one.rights(asker("c")).may(READ, TOPIC, "t")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer"),
        ("super.users", "alice"),
        ("super.users", "User:alice;bob"),
        ("allow.everyone.if.no.acl.found", "perhaps"),
    ],
)
def test_settings_that_cannot_be_are_refused(name: str, text: str) -> None:
    with pytest.raises(UsageError, match=name):
        Settings({name: text})


def test_one_that_lets_nobody_do_anything_says_so(caplog: pytest.LogCaptureFixture) -> None:
    store: Any = MemoryStore()
    Authorizer.of(Settings({"authorizer.class.name": AUTHORIZER}), store)
    assert "super.users" in caplog.text
