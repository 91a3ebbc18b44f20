"""Login: the shell of one connection's `AuthenticationState`; it answers SaslHandshake and tokens.

Rule: SaslHandshake is answered when the broker has applied what other brokers have changed, so that
a user or token counts at once for all. Each token is answered before the next one is decided on. A
failed login is answered after `connection.failed.authentication.delay.ms`, and then the connection
is closed. A login that takes too long, with the handshake of TLS, is given up.
Must not know: mechanisms, how bytes are encrypted.
"""

from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from kledger.gateway.listeners.endpoint import Endpoint
from kledger.gateway.net.authentication_state import (
    AUTHENTICATE_KEY,
    HANDSHAKE_KEY,
    LOGIN_TIMEOUT_MS,
    Action,
    AuthenticationState,
    NotPermitted,
    Stage,
    TokenAnswer,
)
from kledger.gateway.net.connection_state import ResponseSlot
from kledger.gateway.net.logins import Logins
from kledger.gateway.net.ports import ResponsePort
from kledger.gateway.net.router import encode_response
from kledger.gateway.peer import Peer
from kledger.gateway.served_apis import HANDLERS_BY_KEY
from kledger.gateway.wire.codec import decode
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.header import REQUEST_HEAD, RequestHeader, decode_request_header
from kledger.gateway.wire.messages.k17_sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kledger.gateway.wire.messages.k36_sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from kledger.gateway.wire.schema import ApiMessage
from kledger.security.principal import Principal
from kledger.security.sasl.mechanism import (
    AuthenticationFailed,
    MalformedToken,
    NeedWork,
    Step,
)
from kledger.security.tls.distinguished_name import InvalidCertificate, subject_of

if TYPE_CHECKING:
    from kledger.gateway.services import CatchUp
    from kledger.runtime.timers import TimerHandle

M = TypeVar("M", bound=ApiMessage)

SIZE_BYTES = 4


class LoginPort(ResponsePort, Protocol):
    """The connection of a login."""

    peer: Peer

    def login_ended(self) -> None:
        """Permit requests of every size."""
        ...

    def stop(self) -> None:
        """Start no further request, and close when all are answered."""
        ...


class Login:
    """The login of one connection, and those that follow it (KIP-368)."""

    __slots__ = ("_endpoint", "_logins", "_port", "_state", "_timers")

    def __init__(self, port: LoginPort, endpoint: Endpoint, logins: Logins) -> None:
        self._port = port
        self._endpoint = endpoint
        self._logins = logins
        self._state: AuthenticationState | None = None
        if endpoint.mechanisms:
            self._state = AuthenticationState(
                endpoint.mechanisms, lambda name: endpoint.session_max_ms[name]
            )
        self._timers: list[TimerHandle] = []

    def begin(self) -> None:
        """Count the connection among those that have not logged in, and limit its time."""
        self._logins.begin(self)
        self._limit_time()

    def close(self) -> None:
        """Forget the login: the connection is closed."""
        self._logins.end(self)
        self._cancel_timers()

    def give_up(self, reason: str) -> None:
        """Close the connection, and log why."""
        self._port.fail(reason)

    @property
    def has_raw_tokens(self) -> bool:
        """Whether the next frame is a token without a header."""
        return self._state is not None and self._state.has_raw_tokens

    # TLS.

    def encrypted(self, certificate: bytes | None) -> None:
        """Take the client's certificate in DER, if it has one: TLS is established."""
        if self._state is not None:
            return
        principal = self._port.peer.principal
        if certificate is not None:
            assert self._endpoint.mapping is not None, "certificates without rules for their names"
            try:
                subject = subject_of(certificate)
            except InvalidCertificate as error:
                self._refuse_certificate(str(error))
                return
            name = self._endpoint.mapping.name_of(subject)
            if name is None:
                self._refuse_certificate("no rule of ssl.principal.mapping.rules fits the subject")
                return
            principal = Principal(name)
        self._succeed(principal, "TLS")

    def _refuse_certificate(self, reason: str) -> None:
        self._logins.failed(self._port.peer_host, reason)
        self._port.fail(reason)

    def refuse_handshake(self, reason: str) -> None:
        """Close, as TLS failed; it is a failed login if the client's certificate is at fault."""
        if "CERTIFICATE" in reason:
            self._logins.failed(self._port.peer_host, reason)
        self._port.fail(f"TLS: {reason}")

    # SASL.

    def takes(self, frame: memoryview, now_ms: int) -> bool:
        """Return whether a frame belongs to a login; it is answered then, or has ended it.

        Args:
            frame: without its size; valid during this call.
            now_ms: monotonic.
        """
        state = self._state
        if state is None:
            return False
        try:
            if state.has_raw_tokens:
                state.admit_raw(len(frame))
                self._evaluate(None, bytes(frame))
                return True
            action = state.admit(int.from_bytes(frame[:2], "big"), len(frame), now_ms)
            if action is Action.ORDINARY:
                return False
            if action is Action.HANDSHAKE:
                self._handshake(state, frame)
            else:
                header, request = _decoded(frame, AUTHENTICATE_KEY, SaslAuthenticateRequest)
                self._evaluate(header, request.auth_bytes)
        except NotPermitted as error:
            self._port.fail(str(error))
        return True

    def _handshake(self, state: AuthenticationState, frame: memoryview) -> None:
        header, request = _decoded(frame, HANDSHAKE_KEY, SaslHandshakeRequest)
        if state.stage is Stage.AUTHENTICATED:
            self._limit_time()
        is_offered = state.choose(request.mechanism, header.api_version, self._logins.wall_ms())
        slot = self._open_slot()
        response = SaslHandshakeResponse(mechanisms=state.offered)
        if not is_offered:
            response.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            self._fail(slot, header, response, "a mechanism that the listener does not offer")
        elif (catch_up := self._logins.catch_up) is None:
            self._answer(slot, header, response)
        else:
            answered = self._answer_caught_up(catch_up, slot, header, response)
            self._logins.spawn(answered, "login", unit=self._port)

    async def _answer_caught_up(
        self, catch_up: "CatchUp", slot: ResponseSlot, header: RequestHeader, response: ApiMessage
    ) -> None:
        await catch_up()
        if not self._port.is_closed:
            self._answer(slot, header, response)

    def _evaluate(self, header: RequestHeader | None, token: bytes) -> None:
        """Answer a token; without a header it came as a frame of its own."""
        assert self._state is not None, "a token on a listener without SASL"
        if not self._logins.admits(self._port.peer_host):
            raise NotPermitted("too many failed logins of this address")
        slot = self._open_slot()
        try:
            self._take(slot, header, self._state.evaluate(token))
        except (AuthenticationFailed, MalformedToken) as error:
            self._failed(slot, header, error)

    def _take(self, slot: ResponseSlot, header: RequestHeader | None, step: Step) -> None:
        """Answer with a step, or let a thread do its work first."""
        assert self._state is not None, "a step on a listener without SASL"
        if isinstance(step, NeedWork):
            self._logins.spawn(self._work(slot, header, step), "login", unit=self._port)
            return
        answer = self._state.settle(
            step, now_ms=self._logins.now_ms(), wall_ms=self._logins.wall_ms()
        )
        if self._state.stage is Stage.AUTHENTICATED:
            assert self._state.principal is not None, "a login without a principal"
            self._port.peer.is_token = self._state.is_token
            self._succeed(self._state.principal, self._state.mechanism_name)
        self._answer(slot, header, answer)

    async def _work(
        self, slot: ResponseSlot, header: RequestHeader | None, step: NeedWork[object]
    ) -> None:
        result = await self._logins.run(step.run)
        if self._port.is_closed:
            return
        try:
            self._take(slot, header, step.resume(result))
        except (AuthenticationFailed, MalformedToken) as error:
            self._failed(slot, header, error)

    # The end of a login.

    def _succeed(self, principal: Principal, mechanism: str) -> None:
        self._logins.end(self)
        self._cancel_timers()
        peer = self._port.peer
        peer.principal = principal
        self._logins.succeeded(principal, peer.host, mechanism, self._endpoint.plan.name)
        self._port.login_ended()

    def _failed(
        self,
        slot: ResponseSlot,
        header: RequestHeader | None,
        error: AuthenticationFailed | MalformedToken,
    ) -> None:
        if header is None or isinstance(error, MalformedToken):
            # Raw tokens have no answer for a failure.
            self._fail(slot, None, None, str(error))
            return
        response = SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(error)
        )
        self._fail(slot, header, response, str(error.__cause__ or error))

    def _fail(
        self,
        slot: ResponseSlot,
        header: RequestHeader | None,
        response: ApiMessage | None,
        reason: str,
    ) -> None:
        """Answer that the login has failed, after a while, and close."""
        assert self._state is not None, "a failed login on a listener without SASL"
        self._state.fail()
        self._logins.failed(self._port.peer_host, reason)

        def finish() -> None:
            if header is None or response is None:
                self._port.fail(reason)
                return
            self._answer(slot, header, response)
            self._port.stop()

        self._timers.append(
            self._logins.timers.call_after(self._logins.failure_delay_ms, finish, self._port)
        )

    def _open_slot(self) -> ResponseSlot:
        slot = ResponseSlot()
        self._port.open_slot(slot, is_exclusive=True)
        return slot

    def _answer(
        self,
        slot: ResponseSlot,
        header: RequestHeader | None,
        answer: TokenAnswer | ApiMessage,
    ) -> None:
        if isinstance(answer, TokenAnswer):
            token = answer.token
            if header is None:
                slot.response = (len(token).to_bytes(SIZE_BYTES, "big") + token,)
                self._port.slot_ready(slot)
                return
            answer = SaslAuthenticateResponse(
                auth_bytes=token, session_lifetime_ms=answer.session_lifetime_ms
            )
        assert header is not None, "a message for a token without a header"
        slot.response = encode_response(header, answer)
        self._port.slot_ready(slot)

    def _limit_time(self) -> None:
        give_up = partial(self.give_up, f"no login within {LOGIN_TIMEOUT_MS} ms")
        self._timers.append(self._logins.timers.call_after(LOGIN_TIMEOUT_MS, give_up, self._port))

    def _cancel_timers(self) -> None:
        timers, self._timers = self._timers, []
        for timer in timers:
            timer.cancel()


def _decoded(frame: memoryview, key: int, request_class: type[M]) -> tuple[RequestHeader, M]:
    """Return header and body of a request of a login.

    Raises:
        MalformedMessage: it is malformed.
        NotPermitted: its version is not served.
    """
    _, version, _, _ = REQUEST_HEAD.unpack_from(frame)
    spec = HANDLERS_BY_KEY[key]
    if not spec.min_version <= version <= spec.max_version:
        raise NotPermitted(f"unsupported request: key {key}, version {version}")
    header = decode_request_header(frame)
    return header, decode(request_class, version, frame, header.body_start)
