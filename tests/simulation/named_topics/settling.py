"""Settling: compares the whole topic with the model when nothing is under way and nothing fails.

Rule: what is not committed has come, or comes now; what everyone has committed goes; a process that
has ended owns nothing.
Must not know: what happened before.
"""

import asyncio
from collections.abc import Sequence

from kledger.batches.reader import iterate_batches, iterate_records
from kledger.named_topics.log_trimming import TRIM_INTERVAL_MS
from kledger.named_topics.model import SubscriberGroupInfo
from kledger.named_topics.service import ANONYMOUS_TIMEOUT_MS
from kledger.topics import PartitionLog
from tests.simulation.invariants import check
from tests.simulation.named_topics.actions import committing, receiving
from tests.simulation.named_topics.member import Member
from tests.simulation.named_topics.server import ServerProcess
from tests.simulation.named_topics.world import TIMEOUT_S, TOPIC, World

SETTLED_MS = 1_000
"""Longer than any call takes."""
RECONNECT_MS = 6_000
"""Longer than the longest delay between two attempts to join again."""
TRIMS_MAX = 4
"""Times of trimming after which a log must have been trimmed: one trims all logs in a row."""
DRAINS, COMMITS, WAITS = 0.5, 0.5, 0.1
"""Probabilities: that everything is received, then committed; that anonymous groups time out."""


async def settle(world: World) -> None:
    """Let everything end without faults, then compare the whole state."""
    world.trace("rest")
    world.is_resting, world.faults.is_on = True, False
    await world.rest()
    while world.is_changing_server:
        await world.machine.clock.sleep(100)
    for link in world.network.links:
        link.heal()
        link.thaw()
    await world.machine.clock.sleep(RECONNECT_MS)
    await _let_the_dead_time_out(world)
    server = world.server
    assert server is not None
    await _compare(world, server)
    if world.random.random() < DRAINS and not world.model.expires:
        await _drain(world)
        if world.random.random() < COMMITS:
            await _commit_all(world)
        await _keep_alive(world)
        await _compare(world, server)
        await _check_trimmed(world, server)
    world.is_resting, world.faults.is_on = False, True


async def _let_the_dead_time_out(world: World) -> None:
    """Let time pass, in which members that are there are alive."""
    timeout_ms = world.settings.timeout_ms
    await _keep_alive(world)
    for _ in range(6):
        await world.machine.clock.sleep(timeout_ms // 4)
        await _keep_alive(world)
    if world.random.random() < WAITS:
        await world.machine.clock.sleep(ANONYMOUS_TIMEOUT_MS + SETTLED_MS)
        await _keep_alive(world)
        await world.machine.clock.sleep(SETTLED_MS)
        known = {
            member.group.name
            for member in world.members.values()
            if member.usable is not None and member.group_name is None
        }
        found = {each.name for each in await _groups(world) if each.is_anonymous}
        check(found <= known, f"groups of nobody are left: {found - known}")


async def _keep_alive(world: World) -> None:
    """Let all members receive, or join again."""
    members = [each.usable for each in world.members.values()]
    subscribers = [each for each in members if each is not None]
    await asyncio.gather(*(each.get_remaining_messages() for each in subscribers))
    await asyncio.gather(*(each.heartbeat() for each in subscribers))


async def _groups(world: World) -> list[SubscriberGroupInfo]:
    assert world.server is not None
    return await world.server.service.subscriber_groups(TOPIC)


async def _compare(world: World, server: ServerProcess) -> None:
    """Compare positions, owners and numbers of all groups, and the values of all channels."""
    topic = server.registry.get(TOPIC)
    assert topic is not None
    logs = [await topic.open_partition(each) for each in range(topic.partition_count)]
    ends = {log.index: log.high_watermark for log in logs}
    members = [each for each in world.members.values() if each.usable is not None]
    groups = {each.name: each for each in await _groups(world)}
    for name, model in world.model.groups.items():
        group = groups.get(name)
        alive = {
            each.subscriber.id
            for each in members
            if each.subscriber is not None and each.group is model
        }
        check(group is not None or not alive, f"group {name} is gone, and {alive} are in it")
        if group is None:
            continue
        known = set(group.subscribers)
        is_lingering = group.is_anonymous and not alive
        check(
            known == alive or is_lingering,
            f"group {name} has the subscribers {known}, expected {alive}",
        )
        for each in group.channels:
            what = model.what(each.channel)
            check(bool(each.owner) == bool(known), f"{what} is owned by {each.owner} of {known}")
            model.channel(each.channel).settle(each.next_offset, what)
            end = ends.get(each.channel, 0)
            check(each.end_offset == end, f"{what} ends at {each.end_offset}, expected {end}")
            left = end - each.next_offset
            is_right = each.remaining == left
            if world.model.expires:
                left -= world.model.expired_count(each.channel, range(each.next_offset, end))
                is_right = each.remaining <= left
            check(is_right, f"{what}: {each.remaining} remain, expected {left}")
        if alive and not world.model.expires:
            left = sum(each.remaining for each in group.channels)
            counts = [
                await each.subscriber.get_remaining_messages()
                for each in members
                if each.subscriber is not None and each.group is model
            ]
            check(sum(counts) == left, f"group {name}: {counts} remain, expected {left}")
    await _check_values(world, logs)


async def _check_values(world: World, logs: Sequence[PartitionLog]) -> None:
    """Check that each channel has what was published, once and in order."""
    for log in logs:
        number, end = log.index, log.high_watermark
        check(end >= world.model.ends.get(number, 0), f"channel {number} ends at {end}")
        offset = log.log_start_offset
        while offset < end:
            result = await log.read(offset, 1 << 20)
            if result.error is not None:  # of an earlier read with faults, or it was trimmed
                offset = max(offset, log.log_start_offset)
                result = await log.read(offset, 1 << 20)
            check(result.error is None, f"channel {number}, {offset}: {result.error}")
            for _, batch in iterate_batches(b"".join(result.chunks)):
                for record in iterate_records(batch):
                    assert record.value is not None
                    world.model.seen(number, record.offset, record.value)
                    offset = record.offset + 1
    world.model.check_order()


# Draining


async def _drain(world: World) -> None:
    """Let all members receive until each has all of its channels."""
    world.trace("drain")
    members = [each for each in world.members.values() if each.usable is not None]
    async with asyncio.timeout(TIMEOUT_S):
        while lacking := [each for each in members if not _has_everything(world, each)]:
            await asyncio.gather(*(receiving(each, 10) for each in lacking))
            await _keep_alive(world)


def _has_everything(world: World, member: Member) -> bool:
    server = world.server
    assert server is not None
    topic = server.registry.get(TOPIC)
    assert topic is not None
    ends = {each.index: each.high_watermark for each in topic.open_partitions()}
    # What it had received before, and has committed since it joined again, does not come.
    for number, period in member.periods.items():
        channel = member.group.channel(number)
        left = range(max(period.next, *channel.choices), ends.get(number, 0))
        if not all(map(channel.is_left_out, left)):
            return False
    return True


async def _commit_all(world: World) -> None:
    for member in world.members.values():
        owned = [each for number, each in member.elements.items() if number in member.periods]
        if member.usable is not None and owned:
            await committing(member, owned)


async def _check_trimmed(world: World, server: ServerProcess) -> None:
    """Check that storage follows what all groups have committed."""
    if world.settings.is_retaining:
        return
    groups = await _groups(world)
    topic = server.registry.get(TOPIC)
    assert topic is not None
    for log in topic.open_partitions():
        next_offsets = [each.channels[log.index].next_offset for each in groups]
        start = min(next_offsets, default=log.high_watermark)
        found = await _trimmed_start(world, log, start)
        check(found == start, f"channel {log.index} begins at {found}, expected {start}")
        closed = [each for each in log.managed_ledger.ledgers if each.closed_ms is not None]
        if found == log.high_watermark:
            check(len(closed) <= 1, f"channel {log.index}: {len(closed)} ledgers are left over")


async def _trimmed_start(world: World, log: PartitionLog, start: int) -> int:
    """Return where a log begins as soon as it is trimmed up to an offset, or should have been."""
    for _ in range(TRIMS_MAX):
        await world.machine.clock.sleep(TRIM_INTERVAL_MS + SETTLED_MS)
        if log.log_start_offset == start:
            break
    return log.log_start_offset
