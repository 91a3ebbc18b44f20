"""One name, one meaning: no two classes of the packages have the same name."""

from collections import defaultdict
from pathlib import PurePosixPath

from tests.tidy.sources import PACKAGES, class_names, python_files

# Kafka's names of structures; several APIs use the same ones.
GENERATED = "gateway/wire/messages"

# Names with two classes, and the reason.
TWICE = {
    "AbortedTransaction": "Kafka's structure in a Fetch response, and the log's own value of it",
    "AlreadyClosed": "an error of both public packages, kledger and kledger.ledger",
    "Client": "kledger.sync mirrors the asynchronous client",
    "CompactionRunning": "topics and native.errors restate an error of the ledger",
    "ConfigResource": "Kafka's structure in ListConfigResources, and the class that serves it",
    "Consumer": "kledger.sync mirrors the asynchronous client",
    "ConsumerAssign": "native.errors restates an error of subscriptions to its clients",
    "ConsumerBusy": "native.errors restates an error of subscriptions to its clients",
    "Cursor": "Kafka's structure in DescribeTopicPartitions, and Pulsar's cursor",
    "Element": "kledger.sync mirrors the asynchronous client",
    "EmbeddedClient": "kledger.sync mirrors the asynchronous client",
    "InvalidArgument": "an error of both public packages, kledger and kledger.ledger",
    "NamedTopic": "kledger.sync mirrors the asynchronous client",
    "OffloadInProgress": "an error of both public packages, kledger and kledger.ledger",
    "Producer": "kledger.sync mirrors the asynchronous client",
    "Publisher": "kledger.sync mirrors the asynchronous client",
    "Reader": "kledger.sync mirrors the asynchronous client",
    "TableView": "kledger.sync mirrors the asynchronous client",
    "StorageFailed": "subscriptions restate an error of the ledger",
    "Subscriber": "kledger.sync mirrors the asynchronous client",
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
    found = repeated(list(python_files(*PACKAGES)))
    assert {} == {name: paths for name, paths in found.items() if name not in TWICE}
    assert set() == set(TWICE) - set(found), "no longer duplicate"


def test_planted_name_is_found() -> None:
    files = [(PurePosixPath(f"topics/{each}.py"), "class Place:\n    pass\n") for each in "ab"]
    assert {"Place": ["topics/a.py", "topics/b.py"]} == repeated(files)
    messages = [(PurePosixPath(GENERATED) / f"{each}.py", "class A: ...\n") for each in "ab"]
    assert {} == repeated(messages)
