"""Clients that ask, push, go and keep silent in any order: what holds of them always holds."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kledger.gateway.telemetry import telemetry_state
from kledger.gateway.telemetry.telemetry_state import INSTANCES_MAX, ClientInstance, TelemetryState
from kledger.gateway.wire.error_codes import ErrorCode
from tests.gateway.telemetry_words import CLIENT, Wish, numbered

FEW = 3
INTERVAL_MS = 100
IDLE_MS = 60_000
NUMBERS = st.integers(0, 4)
CONNECTIONS = st.integers(0, 2)


class Clients(RuleBasedStateMachine):
    """Five clients, three connections, room for three instances."""

    def __init__(self) -> None:
        super().__init__()
        telemetry_state.INSTANCES_MAX = FEW  # type: ignore[misc]
        self.state = TelemetryState()
        self.now_ms = 0
        self.version = 1
        self.touched_ms: dict[int, int] = {}
        self.last_pushes: dict[int, tuple[ClientInstance, int]] = {}
        """The last push of each that was within its interval and not followed by a request."""

    def teardown(self) -> None:
        telemetry_state.INSTANCES_MAX = INSTANCES_MAX  # type: ignore[misc]

    def touched(self, number: int, connection: int) -> ClientInstance:
        self.touched_ms[number] = self.now_ms
        return self.state.touch(
            numbered(number),
            CLIENT,
            connection,
            subscriptions=[Wish(metrics=(f"v{self.version}",), interval_ms=INTERVAL_MS)],
            version=self.version,
            now_ms=self.now_ms,
        )

    @rule(number=NUMBERS, connection=CONNECTIONS)
    def ask(self, number: int, connection: int) -> None:
        instance = self.touched(number, connection)
        assert self.version == instance.requested.version
        assert (f"v{self.version}",) == instance.requested.metrics
        if instance.admit_get(self.now_ms) is ErrorCode.NONE:
            self.last_pushes.pop(number, None)

    @rule(number=NUMBERS, connection=CONNECTIONS, is_known=st.booleans(), is_last=st.booleans())
    def push(self, number: int, connection: int, is_known: bool, is_last: bool) -> None:
        instance = self.touched(number, connection)
        was_last = instance.is_terminating
        error = instance.admit_push(
            subscription_id=instance.requested.subscription_id + (not is_known),
            is_terminating=is_last,
            codec=0,
            size=1,
            size_max=1,
            now_ms=self.now_ms,
        )
        assert (error is ErrorCode.INVALID_REQUEST) == was_last
        if error is ErrorCode.NONE and not is_last:
            before, at_ms = self.last_pushes.get(number, (None, 0))
            assert before is not instance or self.now_ms - at_ms >= INTERVAL_MS
        if error is ErrorCode.NONE:
            assert is_known
            self.last_pushes[number] = instance, self.now_ms

    @rule(connection=CONNECTIONS)
    def disconnect(self, connection: int) -> None:
        self.state.disconnected(connection)
        assert connection not in self.state._of_connection

    @rule(passed_ms=st.sampled_from([1, INTERVAL_MS - 1, INTERVAL_MS, IDLE_MS - 1, IDLE_MS]))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.state.expire(self.now_ms)

    @rule()
    def change_subscriptions(self) -> None:
        self.version += 1

    @invariant()
    def there_are_not_too_many_and_none_is_silent(self) -> None:
        instances = list(self.state.instances())
        assert len(instances) == len(self.state) <= FEW
        last_seen = [self.touched_ms[one.id.int - 1_000] for one in instances]
        assert last_seen == sorted(last_seen), "who was silent for longest comes first"
        assert all(self.now_ms - at_ms < IDLE_MS for at_ms in last_seen)

    @invariant()
    def connections_name_instances_that_are_there(self) -> None:
        for connection, instance_id in self.state._of_connection.items():
            instance = self.state.get(instance_id)
            assert instance is not None
            assert connection == instance.connection_id


TestClients = Clients.TestCase
TestClients.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
