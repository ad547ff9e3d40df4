"""Credentials kept for users by clients: DescribeUserScramCredentials and AlterUserScramCredentials.

Rule 1: a user's changes of one request hold together or not at all; one user's mistake does not concern another.
Rule 2: keys are kept, passwords never come here. No answer says more than which mechanisms a user has.
Source: KIP-554.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from waterclock.broker.api.countdown import Countdown
from waterclock.broker.api.overdue import NotKept, Refusal
from waterclock.broker.api.table import Api
from waterclock.broker.security.scram import HASHES, ITERATIONS, MOST_ITERATIONS, Credential
from waterclock.broker.security.users import CredentialKey, Users, change
from waterclock.broker.store import Store
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error

DESCRIBE: Final = 50
ALTER: Final = 51
MECHANISMS: Final = dict(enumerate(HASHES, 1))


class ScramApis:
    """The APIs about credentials."""

    def __init__(self, users: Users, store: Store, not_kept: NotKept) -> None:
        self._users = users
        self._store = store
        self._not_kept = not_kept

    def apis(self) -> dict[int, Api]:
        return {DESCRIBE: Api(self.describe, 0, 0), ALTER: Api(self.alter, 0, 0)}

    def describe(self, request: Request) -> None:
        requested = Counter(user.name for user in request.body.users or ())
        names = requested or dict.fromkeys(sorted({name for _, name in self._users.credentials}), 1)
        rows = tuple(self._described(request, name, times) for name, times in names.items())
        request.answer(error_code=Error.NONE, error_message="", results=rows)

    def _described(self, request: Request, name: str, times: int) -> Any:
        has = [(number, m) for number, m in MECHANISMS.items() if (m, name) in self._users.credentials]
        error, message = Error.NONE, ""
        if times > 1:
            has, error, message = [], Error.DUPLICATE_RESOURCE, f"User {name} stands in the request twice."
        elif not has:
            error, message = Error.RESOURCE_NOT_FOUND, f"There is no credential of user {name}."
        infos = tuple(
            request.make("CredentialInfo", mechanism=number, iterations=self._users.credentials[m, name].iterations)
            for number, m in has
        )
        return request.make(
            "DescribeUserScramCredentialsResult", user=name, error_code=error, error_message=message,
            credential_infos=infos,
        )  # fmt: skip

    def alter(self, request: Request) -> None:
        deletions, upsertions = request.body.deletions, request.body.upsertions
        named = [*deletions, *upsertions]
        refused = self._refused(deletions, upsertions)
        names = dict.fromkeys(one.name for one in named)
        rows = {name: self._row(request, name, refused.get(name)) for name in names}
        several = Countdown(len(names), lambda: request.answer(results=tuple(rows.values())))
        for name in names:
            if name in refused:
                several.settled()
            else:
                self._alter(request, name, [one for one in named if one.name == name], rows, several)

    def _refused(self, deletions: Any, upsertions: Any) -> dict[str, Refusal]:
        """Why users are refused."""
        refused: dict[str, Refusal] = {}
        for one in deletions:
            refusal = self._why_not(one)
            if refusal is None and (MECHANISMS[one.mechanism], one.name) not in self._users.credentials:
                refusal = Error.RESOURCE_NOT_FOUND, "There is no such credential."
            if refusal:
                refused.setdefault(one.name, refusal)
        for one in upsertions:
            refusal = self._why_not(one) or self._why_not_set(one)
            if refusal:
                refused.setdefault(one.name, refusal)
        for (name, _), times in Counter((one.name, one.mechanism) for one in (*deletions, *upsertions)).items():
            if times > 1:
                refused.setdefault(name, (Error.DUPLICATE_RESOURCE, "A credential can be changed once in a request."))
        return refused

    def _why_not(self, one: Any) -> Refusal | None:
        if not one.name:
            return Error.UNACCEPTABLE_CREDENTIAL, "A user has a name."
        if one.mechanism not in MECHANISMS:
            return Error.UNSUPPORTED_SASL_MECHANISM, f"There is no SCRAM mechanism {one.mechanism}."
        if one.name in self._users.fixed:
            return Error.UNACCEPTABLE_CREDENTIAL, "This user stands in the broker's file of users: change it there."
        return None

    @staticmethod
    def _why_not_set(one: Any) -> Refusal | None:
        if not ITERATIONS <= one.iterations <= MOST_ITERATIONS:
            return Error.UNACCEPTABLE_CREDENTIAL, f"Iterations go from {ITERATIONS} to {MOST_ITERATIONS}."
        if not one.salted_password:
            return Error.UNACCEPTABLE_CREDENTIAL, "The salted password is empty."
        return None

    def _alter(
        self, request: Request, name: str, requested: list[Any], rows: dict[str, Any], several: Countdown
    ) -> None:
        changed: dict[CredentialKey, Credential | None] = {}
        for one in requested:
            key = (MECHANISMS[one.mechanism], one.name)
            sets = hasattr(one, "salted_password")
            changed[key] = Credential.of(key[0], one.salted_password, one.salt, one.iterations) if sets else None

        def kept(done: bool) -> None:
            if done:
                self._users.take(changed)
            else:
                rows[name] = self._row(request, name, self._not_kept.why())
            several.settled()

        self._store.commit([change(*one) for one in changed.items()], kept)

    @staticmethod
    def _row(request: Request, name: str, refusal: Refusal | None) -> Any:
        error, message = refusal or (Error.NONE, None)
        return request.make("AlterUserScramCredentialsResult", user=name, error_code=error, error_message=message)
