"""One name, one meaning: no two classes of the rooms have the same name."""

from collections import defaultdict
from pathlib import PurePosixPath

from tests.tidy.sources import ROOMS, class_names, python_files

# Kafka's own names of structures; the same one stands in the messages of several APIs.
GENERATED = "gateway/wire/messages"

# Names that have two homes on purpose, and why.
TWICE = {
    "AbortedTransaction": "Kafka's structure in a Fetch response, and what the log remembers",
    "AlreadyClosed": "an error of both public faces, kledger and kledger.ledger",
    "Client": "kledger.sync mirrors the asynchronous client",
    "ConfigResource": "Kafka's structure in ListConfigResources, and the class that serves it",
    "Consumer": "kledger.sync mirrors the asynchronous client",
    "ConsumerAssign": "native.errors restates an error of subscriptions to its clients",
    "ConsumerBusy": "native.errors restates an error of subscriptions to its clients",
    "Cursor": "Kafka's structure in DescribeTopicPartitions, and Pulsar's cursor",
    "EmbeddedClient": "kledger.sync mirrors the asynchronous client",
    "InvalidArgument": "an error of both public faces, kledger and kledger.ledger",
    "Producer": "kledger.sync mirrors the asynchronous client",
    "Reader": "kledger.sync mirrors the asynchronous client",
    "StorageFailed": "subscriptions restate an error of the ledger",
    "SubscriptionFenced": "native.errors restates an error of subscriptions to its clients",
    "SubscriptionNotFound": "native.errors restates an error of subscriptions to its clients",
    "TransactionState": "Kafka's structure in DescribeTransactions, and the state of a partition",
}


def repeated(files: list[tuple[PurePosixPath, str]]) -> dict[str, list[str]]:
    """Return names of classes that occur in more than one file, with the files."""
    homes: dict[str, list[str]] = defaultdict(list)
    for path, text in files:
        for name in class_names(text):
            homes[name].append(str(path))
    return {
        name: paths
        for name, paths in homes.items()
        if len(paths) > 1 and not all(each.startswith(GENERATED) for each in paths)
    }


def test_no_class_name_has_two_meanings() -> None:
    found = repeated(list(python_files(*ROOMS)))
    assert {} == {name: paths for name, paths in found.items() if name not in TWICE}
    assert set() == set(TWICE) - set(found), "no longer there twice"


def test_planted_name_is_found() -> None:
    files = [(PurePosixPath(f"topics/{each}.py"), "class Place:\n    pass\n") for each in "ab"]
    assert {"Place": ["topics/a.py", "topics/b.py"]} == repeated(files)
    messages = [(PurePosixPath(GENERATED) / f"{each}.py", "class A: ...\n") for each in "ab"]
    assert {} == repeated(messages)
