"""Actions: what clients and links do, one function for each that a seed may draw.

Rule: several operations of one subscriber may be under way at the same time. What an application
gets, and what it is answered, is checked by its member.
Must not know: what the server does.
"""

import asyncio
from collections.abc import Callable

import kledger
from kledger.native.errors import IllegalArgument, KledgerError
from tests.simulation.invariants import check
from tests.simulation.named_topics.member import Member
from tests.simulation.named_topics.world import (
    CHANNELS_MAX,
    GROUPS,
    MEMBERS_MAX,
    TOPIC,
    PublisherProcess,
    World,
)

RECEIVE_S = 20.0
"""Virtual time that an application waits for an element at most."""


# Publishing


def publish(world: World) -> None:
    """Publish some values to one channel."""
    process = world.random.choice(world.publishers)
    channel = world.random.randrange(world.settings.channel_count)
    count = world.random.choice((1, 1, 2, 5, 20))
    world.start(
        f"{process.name} publishes {count} to {channel}",
        _publishing(world, process, channel, count),
    )


async def _publishing(world: World, process: PublisherProcess, channel: int, count: int) -> None:
    name, publisher = await world.publisher(process, channel)
    values = []
    for _ in range(count):
        process.sent += 1
        values.append(b"%d|%s|%d" % (channel, name.encode(), process.sent))
        world.model.begun_ms[values[-1]] = world.machine.clock.now_ms()
    results = await asyncio.gather(*map(publisher.publish, values), return_exceptions=True)
    for value, result in zip(values, results, strict=True):
        if isinstance(result, kledger.PublishStatus):
            check(result.channel == channel, f"{value!r} is in channel {result.channel}")
            world.model.published(channel, result.position.offset, value)
        elif not isinstance(result, KledgerError):
            raise result


# Members


def join(world: World) -> None:
    """Start a member that is not there."""
    if len(world.members) < MEMBERS_MAX:
        world.starts += 1
        name = f"m{world.starts}"
        group = world.random.choice(GROUPS)
        world.start(f"{name} joins {group}", world.join(name, group), may_cancel=False)


def leave(world: World) -> None:
    """Close a member."""
    if (member := _pick(world)) is not None:
        world.start(f"{member} leaves", world.leave(member), may_cancel=False)


def kill(world: World) -> None:
    """Kill the process of a member."""
    if (member := _pick(world)) is not None:
        world.start(f"{member} is killed", world.kill(member), may_cancel=False)


def disconnect(world: World) -> None:
    """Let a subscriber disconnect; its next receive joins again."""
    if (member := _pick(world)) is not None and member.subscriber is not None:
        world.start(f"{member} disconnects", member.subscriber.disconnect(), of=member)


# Receiving


def receive(world: World) -> None:
    """Receive one element, or several."""
    if (member := _pick(world)) is not None:
        count = world.random.choice((1, 1, 1, 3, 10))
        world.start(f"{member} receives {count}", receiving(member, count), of=member)


async def receiving(member: Member, count: int) -> None:
    """Receive, and check what comes."""
    assert member.subscriber is not None
    try:
        async with asyncio.timeout(RECEIVE_S):
            if count == 1:
                element = await member.subscriber.receive()
                found = [] if element is None else [element]
            else:
                found = await member.subscriber.receive_batch(count)
    except TimeoutError:
        return
    check(len(found) <= count, f"{member}: received {len(found)} of {count}")
    for each in found:
        member.received(each)


def heartbeat(world: World) -> None:
    """Send a heartbeat."""
    if (member := _pick(world)) is not None and member.subscriber is not None:
        world.start(f"{member} is alive", member.subscriber.heartbeat(), of=member)


# Committing


def commit(world: World) -> None:
    """Commit the newest element of one channel, or of all."""
    member = _pick(world)
    if member is None or not member.elements:
        return
    elements = list(member.elements.values())
    if world.random.random() < 0.7:
        elements = [world.random.choice(elements)]
    offsets = [(each.channel, each.position.offset) for each in elements]
    world.start(f"{member} commits {offsets}", committing(member, elements), of=member)


async def committing(member: Member, elements: list[kledger.Element]) -> None:
    """Commit elements together, and note the results."""
    assert member.subscriber is not None
    positions = {each.channel: each.position for each in elements}
    results = await member.subscriber.commit_all(positions)
    for each in elements:
        member.committed(member.group.channel(each.channel), each, results[each.channel])


def commit_unread(world: World) -> None:
    """Commit a position that nobody has read, which is refused."""
    if (member := _pick(world)) is not None:
        channel = world.random.randrange(world.settings.channel_count)
        world.start(f"{member} commits unread {channel}", _refused(member, channel), of=member)


async def _refused(member: Member, channel: int) -> None:
    assert member.subscriber is not None
    result = await member.subscriber.commit(channel, kledger.ChannelPosition(channel, 1 << 40))
    check(not result.is_success, f"{member}: a commit of an unread element is {result.status}")


# Seeking


def seek(world: World) -> None:
    """Seek in an owned channel, or in all."""
    member = _pick(world)
    if member is None or member.subscriber is None:
        return
    subscriber, random = member.subscriber, world.random
    channels = sorted(subscriber.channels) or [0]
    if random.random() < 0.8:
        channels = [random.choice(channels)]
    kind = random.choice(("position", "position", "commit", "head", "tail", "tail commit"))
    work: Callable[[], object]
    if kind in {"position", "commit"}:
        targets: dict[int, kledger.ChannelPosition | int] = {
            each: kledger.ChannelPosition(each, random.randrange(-1, _end(world, each) + 3))
            for each in channels
        }
        is_committing = kind == "commit"
        work = lambda: (  # noqa: E731
            subscriber.seek_and_commit_all(targets)
            if is_committing
            else subscriber.seek_all(targets)
        )
        kind = f"{kind} {[each.offset for each in targets.values()]}"  # type: ignore[union-attr]
    elif kind == "head":
        work = lambda: subscriber.seek_to_head(*channels)  # noqa: E731
    elif kind == "tail":
        work = lambda: subscriber.seek_to_tail(*channels)  # noqa: E731
    else:
        work = lambda: subscriber.seek_to_tail_and_commit(*channels)  # noqa: E731
    world.start(f"{member} seeks {channels} to {kind}", _seeking(work), of=member)


async def _seeking(work: Callable[[], object]) -> None:
    await work()  # type: ignore[misc]


def _end(world: World, channel: int) -> int:
    return world.model.ends.get(channel, 0)


# Looking up


def look_up(world: World) -> None:
    """Ask for positions and numbers of the owned channels."""
    if (member := _pick(world)) is not None:
        world.start(f"{member} looks up", _looking(member), of=member)


async def _looking(member: Member) -> None:
    subscriber = member.subscriber
    assert subscriber is not None
    heads = await subscriber.get_heads()
    tails = await subscriber.get_tails()
    await subscriber.get_last_committed()
    check(await subscriber.get_remaining_messages() >= 0, f"{member}: remaining below 0")
    for each in heads.keys() & tails.keys():
        check(heads[each].offset <= tails[each].offset + 1, f"{member}: {heads}, {tails}")


# Links and processes


def freeze(world: World) -> None:
    """Stop a member, for longer than its timeout or not, and let it go on."""
    if (member := _pick(world)) is not None:
        for_ms = world.random.choice((100, world.settings.timeout_ms + 500))
        world.start(
            f"{member} is frozen for {for_ms}", _freezing(world, member, for_ms), may_cancel=False
        )


async def _freezing(world: World, member: Member, for_ms: int) -> None:
    member.link.freeze()
    await world.machine.clock.sleep(for_ms)
    member.link.thaw()


def lose_network(world: World) -> None:
    """Cut the link of a client for a while."""
    links = [each.link for each in world.members.values()]
    links += [each.link for each in world.publishers]
    link = world.random.choice(links)
    for_ms = world.random.choice((0, 200, world.settings.timeout_ms + 500))

    async def lose() -> None:
        link.cut()
        await world.machine.clock.sleep(for_ms)
        link.heal()

    world.start(f"a link is cut for {for_ms}", lose(), may_cancel=False)


def kill_server(world: World) -> None:
    """Kill the server, or cut its power."""
    survivors: int | None = None
    if world.machine.store.durability == "fsync" and world.random.random() < 0.6:
        survivors = world.random.choice((0, 0, 1, 3))
    what = "is killed" if survivors is None else "loses power"
    world.start(f"the server {what}", world.kill_server(survivors), may_cancel=False)


def restart_server(world: World) -> None:
    """Stop the server in order, and start it."""
    world.start("the server is restarted", world.restart_server(), may_cancel=False)


def grow(world: World) -> None:
    """Add a channel."""
    if world.settings.channel_count < CHANNELS_MAX and world.members:
        member = world.random.choice(list(world.members.values()))
        world.start(f"{member} adds a channel", _growing(world, member), may_cancel=False)


async def _growing(world: World, member: Member) -> None:
    count = world.settings.channel_count + 1
    try:
        await member.client.named_topic(TOPIC, channel_count=count)
    except IllegalArgument:
        return  # another call has added more
    world.settings.channel_count = max(world.settings.channel_count, count)


def _pick(world: World) -> Member | None:
    """Return a member with a subscriber."""
    found = [each for each in world.members.values() if each.usable is not None]
    return world.random.choice(found) if found else None


ACTIONS: dict[str, tuple[Callable[[World], None], float]] = {
    "publish": (publish, 10),
    "join": (join, 4),
    "leave": (leave, 1),
    "kill": (kill, 0.7),
    "disconnect": (disconnect, 0.7),
    "receive": (receive, 16),
    "heartbeat": (heartbeat, 1),
    "commit": (commit, 10),
    "commit unread": (commit_unread, 0.5),
    "seek": (seek, 3),
    "look up": (look_up, 1),
    "freeze": (freeze, 0.7),
    "lose network": (lose_network, 1),
    "kill server": (kill_server, 0.7),
    "restart server": (restart_server, 0.3),
    "grow": (grow, 0.3),
}
"""The actions and their usual weights."""


async def pause(world: World) -> None:
    """Let some time pass, or none."""
    dice = world.random.random()
    if dice < 0.3:
        return
    if dice < 0.7:
        await asyncio.sleep(0)
    else:
        timeout_ms = world.settings.timeout_ms
        await world.machine.clock.sleep(
            world.random.choice((1, 1, 3, 10, 100, 1000, timeout_ms // 2, timeout_ms))
        )
