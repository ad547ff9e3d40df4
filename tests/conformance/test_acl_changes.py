"""ACLs made, found and taken away: what cannot be one, and what a filter finds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.acls import (
    ALICE,
    ALLOW,
    ANY,
    CLUSTER,
    DENY,
    MATCH,
    PREFIXED,
    TYPES,
    Acl,
    Granting,
    acl,
    filter_of,
)
from tests.conformance.wire import Closed, Wire
from waterclock.bench.servers.server import Server


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, "none"),
        ({"name": ""}, "invalid_request"),
        ({"name": "*"}, "none"),
        ({"type": TYPES["cluster"]}, "invalid_request"),
        ({"type": TYPES["cluster"], "name": CLUSTER}, "none"),
        ({"type": TYPES["cluster"], "name": CLUSTER, "pattern": PREFIXED}, "none"),
        ({"type": TYPES["user"], "operation": 13}, "none"),
        ({"type": TYPES["transactional id"], "operation": 15}, "none"),
        ({"type": 99}, "invalid_request"),
        ({"pattern": 99}, "invalid_request"),
        ({"operation": 99}, "invalid_request"),
        ({"permission": 99}, "invalid_request"),
        ({"principal": "alice"}, "invalid_request"),
        ({"principal": ""}, "invalid_request"),
        ({"principal": "User:"}, "none"),
        ({"principal": "Group:some"}, "none"),
        ({"host": ""}, "none"),
        ({"host": "somewhere"}, "none"),
    ],
)
def test_what_can_be_an_acl(granting: Granting, name: str, fields: dict[str, Any], error: str) -> None:
    good = acl("read", "topic", name)
    assert granting.create(good, good._replace(**fields)) == ["none", error]
    assert good in granting.find(**good.wanted())


@pytest.mark.parametrize(
    "fields", [{"type": ANY}, {"pattern": ANY}, {"pattern": MATCH}, {"operation": ANY}, {"permission": ANY}]
)
def test_what_stands_in_filters_alone_fails_the_whole_request(
    granting: Granting, name: str, fields: dict[str, Any]
) -> None:
    good = acl("read", "topic", name)
    creations = [one.creation() for one in (good, good._replace(**fields))]
    results = granting.wire.ask("create_acls", 3, creations=creations).results
    assert [row.error_code.name for row in results] == ["unknown_server_error"] * 2
    assert granting.find(**good.wanted()) == []


@pytest.mark.parametrize("field", ["type", "pattern", "operation", "permission"])
def test_a_number_that_means_nothing_closes_the_connection(authorized: Server, name: str, field: str) -> None:
    from tests.conformance.acls import BOB, logged_in

    with logged_in(authorized, BOB) as wire:
        creation = acl("read", "topic", name)._replace(**{field: 0}).creation()
        wire.send("create_acls", 3, creations=[creation])
        with pytest.raises(Closed):
            wire.receive("create_acls", 3)


def test_an_acl_that_is_there_already_is_made_once_more_without_an_error(granting: Granting, name: str) -> None:
    one = acl("read", "topic", name)
    assert granting.create(one, one) == ["none", "none"]
    assert granting.create(one) == ["none"]
    assert granting.find(**one.wanted()) == [one]


def kept(name: str) -> dict[str, Acl]:
    """The ACLs of which the filters are to find some."""
    read = acl("read", "topic", name)
    return {
        "literal": read,
        "of another": read._replace(name=name + "x"),
        "prefixed": read._replace(name=name[:-1], pattern=PREFIXED),
        "denied": read._replace(permission=DENY, operation=4),
        "of a group": read._replace(type=TYPES["group"]),
        "of carol": read._replace(principal="User:carol"),
        "from a host": read._replace(host="192.0.2.1"),
    }


def of_this(name: str, **fields: Any) -> dict[str, Any]:
    return {**filter_of(TYPES["topic"], name), **fields}


ABOUT = {"literal", "denied", "of carol", "from a host"}
FILTERS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "by its name, of any pattern": ({}, ABOUT),
    "literal only": ({"pattern_type_filter": 3}, ABOUT),
    "prefixed only": ({"pattern_type_filter": 4}, set()),
    "all that are about the name": ({"pattern_type_filter": MATCH}, ABOUT | {"prefixed"}),
    "of any type": ({"resource_type_filter": ANY}, ABOUT | {"of a group"}),
    "denied": ({"permission_type": DENY}, {"denied"}),
    "allowed": ({"permission_type": ALLOW}, ABOUT - {"denied"}),
    "an operation": ({"operation": 3}, ABOUT - {"denied"}),
    "an operation nobody has": ({"operation": 2}, set()),
    "a principal": ({"principal_filter": "User:carol"}, {"of carol"}),
    "a host": ({"host_filter": "192.0.2.1"}, {"from a host"}),
    "every host": ({"host_filter": "*"}, ABOUT - {"from a host"}),
}


@pytest.mark.parametrize("way", FILTERS)
def test_what_a_filter_finds_is_also_what_it_takes_away(granting: Granting, name: str, way: str) -> None:
    fields, found = FILTERS[way]
    acls = kept(name)
    assert set(granting.create(*acls.values())) == {"none"}
    wanted = of_this(name, **fields)
    expected = sorted(acls[one] for one in found)
    assert granting.find(**wanted) == expected
    row = granting.delete(wanted)[0]
    gone = [(one.resource_name, one.principal, one.host, one.operation) for one in row.matching_acls]
    assert sorted(gone) == sorted((one.name, one.principal, one.host, one.operation) for one in expected)
    assert granting.find(**wanted) == []


def test_a_name_matches_the_wildcard_and_what_it_begins_with(granting: Granting, name: str) -> None:
    every, begins = (
        acl("read", "topic", "*", principal=f"User:{name}"),
        acl("read", "topic", name[:4], pattern=PREFIXED),
    )
    granting.create(every, begins, acl("read", "topic", name + "longer", pattern=PREFIXED))
    found = granting.find(**filter_of(TYPES["topic"], name, MATCH))
    assert {every, begins} <= set(found)
    assert all(one.name != name + "longer" for one in found)
    assert every in granting.find(**filter_of(TYPES["topic"], "*", 3))


def test_filters_of_one_request_each_tell_what_they_found(granting: Granting, name: str) -> None:
    one, other = acl("read", "topic", name), acl("write", "topic", name)
    granting.create(one, other)
    rows = granting.delete(one.wanted(), filter_of(TYPES["topic"], name), filter_of(99, name))
    assert [row.error_code.name for row in rows] == ["none", "none", "invalid_request"]
    assert [len(row.matching_acls) for row in rows] == [1, 2, 0]


def test_a_filter_with_a_number_that_is_not_known_finds_nothing(granting: Granting, name: str) -> None:
    granting.create(acl("read", "topic", name))
    assert granting.find(**filter_of(TYPES["topic"], name, operation=99)) == []


def test_without_the_right_nothing_is_made_and_nothing_told(granting: Granting, alice: Wire, name: str) -> None:
    mine = acl("all", "topic", name)
    result = alice.ask("create_acls", 3, creations=[mine.creation()]).results[0]
    assert result.error_code.name == "cluster_authorization_failed"
    assert alice.ask("delete_acls", 3, filters=[filter_of()]).filter_results[0].matching_acls == ()
    assert alice.ask("describe_acls", 3, **filter_of()).resources == ()
    assert granting.find(**filter_of(name=name, principal=ALICE)) == []
