"""Saying who one is: SaslHandshake, SaslAuthenticate, and what a connection may ask before that.

    state    may ask                     then
    NEW      ApiVersions                 NEW
             SaslHandshake 1             TOKENS, if the mechanism is known; otherwise OUT
             SaslHandshake 0             RAW
    TOKENS   SaslAuthenticate            TOKENS, until the mechanism ends: in, or OUT
    RAW      a token without a header    the same, with answers without a header
    OUT      nothing                     closed, once the answer has gone

Rule 1: whoever asks for anything else is closed. Once in, a connection is served without being looked at here.
Rule 2: a failure is answered after a moment, so that guessing takes its time; nothing is read meanwhile.
Rule 3: nothing that a client sent on its way in is written to the log but the user's name.
Source: KIP-43, KIP-152, KIP-368 (a session does not end here).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.api.table import Api
from waterclock.broker.security.scram import AccessDenied
from waterclock.broker.security.users import MECHANISMS, Users
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
