"""Topics that are compacted by a strategy: what clients may set, see and read."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from random import Random

import pytest

import kledger
from kledger.native.compaction_strategy import CompactionStrategy
from kledger.testing import Server
from tests.native import message_strategies
from tests.native.contract.words import SOON_MS

HERE = message_strategies.__name__
MODULES: dict[str, object] = {"compaction.strategy.modules": HERE}
STRATEGY = {"compaction.strategy": f"{HERE}:NewestVersion"}


@asynccontextmanager
async def embedded(data: Path, settings: dict[str, object]) -> AsyncIterator[kledger.Client]:
    async with kledger.embedded(data, settings=settings, operation_timeout_ms=SOON_MS) as client:
        yield client


@asynccontextmanager
async def remote(data: Path, settings: dict[str, object]) -> AsyncIterator[kledger.Client]:
    async with (
        Server(data, native="127.0.0.1:0", settings=settings) as server,
        kledger.connect(
            f"kledger://{server.native_address}", operation_timeout_ms=SOON_MS
        ) as client,
    ):
        yield client


Serving = Callable[[dict[str, object]], AbstractAsyncContextManager[kledger.Client]]


@pytest.fixture(params=[embedded, remote])
def serving(request: pytest.FixtureRequest, tmp_path: Path) -> Serving:
    """Serve a client from one folder, with the given settings."""
    return lambda settings: request.param(tmp_path, settings)


async def put(client: kledger.Client, topic: str, *texts: str) -> None:
    """Send `key=value@version` one after the other; without a value it is a removal."""
    async with await client.create_producer(topic) as producer:
        for text in texts:
            key, value = text.partition("@")[0].split("=")
            version = {"v": text.partition("@")[2]}
            await producer.send(value.encode() or None, key=key, properties=version)


async def test_row_139_a_compaction_keeps_what_the_strategy_of_its_topic_keeps(
    serving: Serving,
) -> None:
    async with serving(MODULES) as client:
        await client.create_topic("orders", config=STRATEGY)
        await put(client, "orders", "a=1@7", "a=2@3", "b=1@1", "b=2@2", "c=1@1", "c=@9", "c=2@1")
        await client.compact("orders")
        status = await client.compaction_status("orders")
        assert ("success", "") == (status.state, status.error)
        view = await client.create_table_view("orders", strategy=message_strategies.NEWEST)
        assert {b"a": b"1", b"b": b"2", b"c": b"2"} == dict(view.items())


async def test_a_strategy_that_is_not_allowed_is_refused_and_nothing_changes(
    serving: Serving,
) -> None:
    async with serving(MODULES) as client:
        with pytest.raises(kledger.InvalidArgument, match=r"compaction\.strategy: .* os:path"):
            await client.create_topic("orders", config={"compaction.strategy": "os:path"})
        with pytest.raises(kledger.InvalidArgument, match="module:attribute"):
            await client.create_topic("orders", config={"compaction.strategy": "Newest"})
        assert [] == await client.topics()


async def test_a_strategy_that_is_not_allowed_any_more_prevents_compactions(
    serving: Serving,
) -> None:
    async with serving(MODULES) as client:
        await client.create_topic("orders", config=STRATEGY)
        await put(client, "orders", "a=1@2", "a=2@1")
    async with serving({}) as client:
        with pytest.raises(kledger.NotAllowed, match=r"compaction\.strategy\.modules \(none\)"):
            await client.compact("orders")
        assert "not_run" == (await client.compaction_status("orders")).state
    async with serving(MODULES) as client:
        await client.compact("orders")
        assert "success" == (await client.compaction_status("orders")).state


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Raising", "OwnError: code 5, b'not a number'"),
        ("Missing", "cannot be loaded: AttributeError"),
        ("Leaving", "ended with status 3"),
    ],
)
async def test_a_strategy_that_fails_ends_the_run_and_changes_nothing(
    serving: Serving, name: str, reason: str
) -> None:
    async with serving(MODULES) as client:
        await client.create_topic("orders", config={"compaction.strategy": f"{HERE}:{name}"})
        await put(client, "orders", "a=1@2", "a=2@1")
        with pytest.raises(kledger.Unavailable, match=reason):
            await client.compact("orders")
        status = await client.compaction_status("orders")
        assert ("error", [None]) == (status.state, status.horizon)
        assert reason in status.error
        view = await client.create_table_view("orders")
        assert {b"a": b"2"} == dict(view.items())


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
@pytest.mark.parametrize("name", ["NewestVersion", "Erratic"])
async def test_views_and_compactions_keep_the_same(serving: Serving, name: str, seed: int) -> None:
    """A view over the raw topic, one over the compacted one, and a fold; after each of two runs."""
    random = Random(seed)
    strategy: CompactionStrategy = getattr(message_strategies, name)()
    policy = random.choice(("delete", "compact"))
    config = {"compaction.strategy": f"{HERE}:{name}", "cleanup.policy": policy}
    async with serving(MODULES) as client:
        await client.create_topic("orders", partitions=2, config=config)
        following = await client.create_table_view("orders", strategy=strategy)
        folded = Fold(strategy)
        reader = await client.create_reader("orders", "earliest", inclusive=True)
        for _ in range(3):
            texts = [
                f"k{random.randrange(9)}={random.choice(('', 'x', 'yy', 'z' * 300))}"
                f"@{random.randrange(5)}"
                for _ in range(60)
            ]
            await put(client, "orders", *texts)
            while await reader.has_message_available():
                folded.take(await reader.read_next())
            for read_compacted in (False, True):
                view = await client.create_table_view(
                    "orders", strategy=strategy, read_compacted=read_compacted
                )
                assert folded.table == dict(view.items())
            await following.refresh()
            assert folded.table == dict(following.items())
            await client.compact("orders")


class Fold:
    """A table by plain means."""

    def __init__(self, strategy: CompactionStrategy) -> None:
        self._strategy = strategy
        self._messages: dict[bytes, kledger.Message | None] = {}

    @property
    def table(self) -> dict[bytes, bytes]:
        return {key: each.value for key, each in self._messages.items() if each and each.value}

    def take(self, message: kledger.Message) -> None:
        key = message.key
        assert key is not None, "each has a key"
        if key not in self._messages or not self._strategy.should_keep_left(
            self._messages[key], message
        ):
            self._messages[key] = message if message.value else None
