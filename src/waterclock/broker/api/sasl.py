"""Saying who one is: SaslHandshake, SaslAuthenticate, what a connection may ask before that; and users' SCRAM credentials.

    state    may ask                     then
    NEW      ApiVersions                 NEW
             SaslHandshake 1             TOKENS, if the mechanism is known; otherwise OUT
             SaslHandshake 0             RAW
    TOKENS   SaslAuthenticate            TOKENS, until the mechanism ends: in, or OUT
    RAW      a token without a header    the same, with answers without a header
    OUT      nothing                     closed, once the answer has gone

Rule 1: a connection that asks for anything else is closed. Once in, it is served without being looked at here.
Rule 2: a failure is answered after a moment, so that guessing takes its time; nothing is read meanwhile.
Rule 3: nothing that a client sent on its way in is written to the log but the user's name.
Rule 4: changes of one user's credentials in one request hold together or not at all; users stand for themselves.
Rule 5: keys are kept, passwords never come here. No answer says more than which mechanisms a user has.
Source: KIP-43, KIP-152, KIP-368 (a session does not end here), KIP-554 (credentials).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.api.table import Api
from waterclock.broker.api.waiting import Countdown, NotKept, Refusal
from waterclock.broker.security.scram import HASHES, ITERATIONS, MOST_ITERATIONS, AccessDenied, Credential
from waterclock.broker.security.users import MECHANISMS, CredentialKey, Users, change
from waterclock.broker.store import Store
from waterclock.broker.wire.codec import API_VERSIONS, Request
from waterclock.broker.wire.errors import Error
from waterclock.broker.wire.fields import INT16, INT32

if TYPE_CHECKING:
    from waterclock.broker.net.connection import Connection, Serve
    from waterclock.broker.net.outgoing import ClientConnection

HANDSHAKE: Final = 17
AUTHENTICATE: Final = 36
DELAY_S: Final = 0.1  # before a failure is answered
log = logging.getLogger("waterclock.broker")


class LoginState(Enum):
    """How far a connection has come with saying who it is."""

    NEW = frozenset({API_VERSIONS, HANDSHAKE})
    TOKENS = frozenset({AUTHENTICATE, HANDSHAKE})
    RAW = frozenset({-1})
    OUT = frozenset({-2})


class SaslLogin:
    """A connection's way in."""

    __slots__ = ("exchange", "state")

    def __init__(self) -> None:
        self.state = LoginState.NEW
        self.exchange: Any = None


class SaslApis:
    """Asks for one of `users`; `later(seconds, call, ...)` calls later."""

    def __init__(self, users: Users, later: Callable[..., Any]) -> None:
        self._users, self._later = users, later

    def guarded(self, serve: Serve) -> Serve:
        """Who serves a new connection: `serve` itself if everybody may come in."""
        self.serve = serve
        return self._guard if self._users.fixed else serve

    def apis(self) -> dict[int, Api]:
        return {HANDSHAKE: Api(self.handshake, 0, 1), AUTHENTICATE: Api(self.authenticate, 0, 2)}

    def _guard(self, connection: Connection, data: memoryview) -> None:
        """Serve a request of somebody who is not in yet."""
        login = connection.login
        if login is None:
            login = connection.login = SaslLogin()
        if login.state is LoginState.OUT:
            return
        if login.state is LoginState.RAW:
            self._raw(connection, bytes(data))
        elif INT16.unpack_from(data)[0] in login.state.value:
            try:
                self.serve(connection, data)
            except Exception as error:
                raise ValueError(
                    f"{type(error).__name__} on the way in"
                ) from None  # Rule 3: its text may hold a secret
        else:
            raise ValueError(f"API {INT16.unpack_from(data)[0]} before its client has logged in")

    def handshake(self, request: Request) -> None:
        connection, mechanism = request.slot.connection, request.body.mechanism
        login: SaslLogin | None = connection.login
        if login is None or login.state is not LoginState.NEW:
            request.answer(error_code=Error.ILLEGAL_SASL_STATE, mechanisms=())
            self._end(connection)
        elif mechanism not in MECHANISMS:
            request.answer(error_code=Error.UNSUPPORTED_SASL_MECHANISM, mechanisms=MECHANISMS)
            self._end(connection)
        else:
            login.exchange = self._users.exchange(mechanism)
            login.state = LoginState.TOKENS if request.version else LoginState.RAW
            request.answer(error_code=Error.NONE, mechanisms=MECHANISMS)

    def authenticate(self, request: Request) -> None:
        connection = request.slot.connection
        if connection.login is None:
            self._answer(request, Error.ILLEGAL_SASL_STATE, "It is known already who this is.")
            return
        try:
            self._answer(request, Error.NONE, "", self._step(connection, request.body.auth_bytes))
        except AccessDenied as denied:
            message = str(denied)
            self._refuse(connection, lambda: self._answer(request, Error.SASL_AUTHENTICATION_FAILED, message))

    @staticmethod
    def _answer(request: Request, error: Error, message: str, token: bytes = b"") -> None:
        request.answer(error_code=error, error_message=message, auth_bytes=token, session_lifetime=timedelta(0))

    def _raw(self, connection: Connection, token: bytes) -> None:
        try:
            answer = self._step(connection, token)
            connection.slot().answer([INT32.pack(len(answer)) + answer])
        except AccessDenied:
            self._refuse(connection, lambda: None)

    def _step(self, connection: ClientConnection, token: bytes) -> bytes:
        exchange = connection.login.exchange
        answer: bytes = exchange.step(token)
        if exchange.user is not None:
            connection.admit(exchange.user, self.serve)
        return answer

    def _refuse(self, connection: ClientConnection, answer: Callable[[], None]) -> None:
        log.warning("%s was not let in", connection.peer())
        connection.login.state = LoginState.OUT
        connection.deafen()

        def after_a_moment() -> None:
            if connection.fd >= 0:
                answer()
                connection.finish()

        self._later(DELAY_S, after_a_moment)

    def _end(self, connection: ClientConnection) -> None:
        """Close after the answer, unless the client is logged in already: then only this request is refused."""
        if connection.login is not None:
            connection.login.state = LoginState.OUT
            connection.finish()


DESCRIBE: Final = 50
ALTER: Final = 51
KEPT_MECHANISMS: Final = dict(enumerate(HASHES, 1))


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
        has = [(number, m) for number, m in KEPT_MECHANISMS.items() if (m, name) in self._users.credentials]
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
            if refusal is None and (KEPT_MECHANISMS[one.mechanism], one.name) not in self._users.credentials:
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
        if one.mechanism not in KEPT_MECHANISMS:
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
            key = (KEPT_MECHANISMS[one.mechanism], one.name)
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
