"""What differs on purpose, and why.

Rule: every line is a difference that the scripts show today; one that they do not fails the test.
What a user would miss stands in docs/SKIPPED.md as well.
"""

from __future__ import annotations

from typing import Final

from compat_tests.differential.differences import Explanation
from compat_tests.differential.explained_variants import VARIANTS_EXPLAINED

EXPLANATIONS: Final[tuple[Explanation, ...]] = (
    # Versions.
    Explanation(
        scripts=("versions_are_advertised",),
        path="api_keys/*",
        ours="missing",
        reason="KRaft, share groups, Streams groups and security have no APIs here",
    ),
    Explanation(
        scripts=("versions_are_advertised",),
        path="*_features*",
        reason="features of KRaft and of what is not served; the epoch counts Kafka's own records",
    ),
    Explanation(
        scripts=("requests_with_nothing_in_them",),
        api="DescribeAcls",
        theirs="closed",
        reason="a filter of the unknown type is answered; Kafka cannot read it and hangs up",
    ),
    Explanation(
        scripts=("requests_with_nothing_in_them",),
        api="ListConfigResources",
        reason="the settings of the node are listed; Kafka lists loggers and its own topics too",
    ),
    # Records.
    Explanation(
        scripts=("fetch_within_limits",),
        path="*/records/*",
        ours="missing",
        theirs="a piece",
        reason="a fetch returns whole batches; Kafka fills its limit with a piece of the next",
    ),
    Explanation(
        scripts=("fetch_session_of_a_deleted_topic",),
        label="within*",
        path="*/error_code",
        ours="100",
        theirs="3",
        versions=(13, 18),
        reason="a session says of an id that it is gone; Kafka still knows the name behind it",
    ),
    Explanation(
        scripts=("produce_refuses_what_is_wrong", "produce_checks_the_request"),
        path="*/log_start_offset",
        ours="0",
        theirs="-1",
        reason="every refusal has the log start; Kafka leaves it out of some",
    ),
    Explanation(
        scripts=("produce_refuses_what_is_wrong",),
        label="codec 5",
        path="*/error_code",
        ours="76",
        theirs="-1",
        reason="an unknown codec has a code of its own, Kafka fails with UNKNOWN_SERVER_ERROR",
    ),
    Explanation(
        scripts=("produce_without_records",),
        theirs="silent",
        reason="null records are INVALID_RECORD; Kafka never answers them",
    ),
    Explanation(
        scripts=("produce_keeps_sequences", "transactional_records_are_admitted"),
        path="*/log_append_time_ms",
        ours="-1",
        reason="a topic with CreateTime has no time of the append, for a duplicate either; Kafka "
        "gives that of the batch",
    ),
    # Empty questions.
    Explanation(
        scripts=(
            "list_offsets_checks_the_request",
            "offsets_are_committed_from_outside",
            "groups_and_offsets_are_deleted",
        ),
        label="no partitions",
        reason="a topic without partitions is answered by one without; Kafka leaves it out",
    ),
    Explanation(
        scripts=("list_offsets_checks_the_request",),
        label="a partition twice",
        path="topics/asked/partitions",
        reason="each repeated entry is refused; Kafka answers once",
    ),
    Explanation(
        scripts=("nothing_is_added_to_a_transaction",),
        theirs="silent",
        reason="an empty question has an empty answer; Kafka never answers it",
    ),
    # Metrics of clients.
    Explanation(
        scripts=("clients_push",),
        label="no OTLP",
        path="error_code",
        ours="87",
        theirs="0",
        reason="a push must be valid metrics; Kafka leaves the check to a plug-in",
    ),
    # Topics.
    Explanation(
        scripts=("metadata_by_id",),
        versions=(10, 11),
        reason="topics are found by id as soon as the request has a field for it; Kafka refuses "
        "the whole request before version 12",
    ),
    Explanation(
        scripts=("metadata_by_id",),
        label="neither",
        versions=(12, 13),
        reason="a topic without name and id is refused for itself; Kafka fails the whole request",
    ),
    *(
        Explanation(
            scripts=(
                "topics_are_created",
                "settings_of_topics_are_described",
                "changes_of_topics_are_limited",
            ),
            path=f"*/configs/{names}*",
            theirs="missing",
            reason="settings of its own, which Kafka has not",
        )
        for names in ("kledger.", "compaction.strategy")
    ),
    # Settings of brokers.
    Explanation(
        scripts=("settings_of_topics_are_described",),
        label="kind 8 *",
        path="*/error_message",
        reason="loggers have no settings, of whichever broker",
    ),
    *(
        Explanation(
            scripts=("settings_of_brokers_are_listed",),
            path=f"results/1/configs/{names}*",
            reason=reason,
        )
        for reason, every_names in (
            ("each server has its own", ("advertised.listeners", "listeners", "log.dir")),
            (
                "Kafka's single node has to be set up so",
                (
                    "controller.listener.names",
                    "controller.quorum.voters",
                    "listener.security.protocol.map",
                    "offsets.topic.replication.factor",
                    "share.coordinator.state.topic.",
                    "transaction.state.log.",
                ),
            ),
            (
                "the scripts set it for Kafka, so that it assigns at once",
                ("group.consumer.assign", "group.consumer.min.assignment.interval.ms"),
            ),
            (
                "settings of its own, which Kafka has not",
                (
                    "advertised.host",
                    "advertised.port",
                    "cluster.id",
                    "kledger.",
                    "queued.max.connection.bytes",
                    "queued.max.response.bytes",
                    "send.buffer.max.bytes",
                ),
            ),
            (
                "Kafka shows what its authorizer reads only if it is set",
                ("allow.everyone.if.no.acl.found", "super.users"),
            ),
            (
                "neither Kerberos nor keystores of Java are supported",
                ("sasl.enabled.mechanisms", "ssl.keystore.type", "ssl.truststore.type"),
            ),
            (
                "what is so here",
                (
                    "group.coordinator.rebalance.protocols",
                    "log.cleaner.dedupe.buffer.size",
                    "queued.max.request.bytes",
                ),
            ),
        )
        for names in every_names
    ),
    # Settings of groups and of subscriptions to client metrics.
    Explanation(
        scripts=(
            "settings_of_groups_and_metrics_are_described",
            "settings_of_groups_and_metrics_are_checked",
            "settings_of_groups_and_metrics_are_changed",
            "settings_of_groups_and_metrics_are_replaced",
        ),
        path="*/configs/consumer.assignment.interval.ms/*",
        reason="the scripts set it for all groups of Kafka, so that it assigns at once as kledger "
        "does, which has no such setting",
    ),
    Explanation(
        scripts=("settings_of_groups_and_metrics_are_changed",),
        label="*, name '', *",
        ours="42",
        theirs="40",
        reason="an empty name is refused before what is to be done; Kafka looks at that first",
    ),
    Explanation(
        scripts=(
            "settings_of_groups_and_metrics_are_changed",
            "settings_of_groups_and_metrics_are_replaced",
        ),
        label="*, name '', *",
        path="*/error_message",
        reason="the same",
    ),
    # Quotas.
    Explanation(
        scripts=("quotas_are_altered",),
        label="another spelling*",
        ours="42",
        theirs="0",
        reason="an address has one spelling; Kafka keeps each, and the last one holds",
    ),
    Explanation(
        scripts=("quotas_are_altered",),
        label="part of an address*",
        ours="42",
        theirs="0",
        reason="the same",
    ),
    Explanation(
        scripts=("quotas_are_altered",),
        label="* nan",
        ours="42",
        theirs="0",
        reason="what is no number is no rate",
    ),
    Explanation(
        scripts=("quotas_are_altered",),
        label="* inf",
        ours="42",
        theirs="0",
        reason="a rate without an end is no limit",
    ),
    # Transactions.
    Explanation(
        scripts=(
            "transactions_end",
            "transactions_end_twice",
            "transactional_records_are_admitted",
            "transactions_time_out",
            "offsets_belong_to_transactions",
            "offsets_of_transactions_are_checked",
            "transactions_are_interleaved",
            "transactions_of_no_records",
            "records_of_a_transaction_that_is_over",
            "groups_are_deleted_while_offsets_are_pending",
            "offsets_are_committed_while_others_are_pending",
            "records_of_an_open_transaction_are_deleted",
        ),
        path="*/transaction_start_time_ms",
        ours="-1",
        theirs="now",
        reason="the time is that of the open transaction; Kafka keeps the time of the last one",
    ),
    Explanation(
        scripts=("transactions_are_described_and_listed",),
        label="open for long",
        path="transaction_states",
        ours="[[]]",
        reason="what is not open has not been open for long; Kafka lists it, as begun in 1970",
    ),
    Explanation(
        scripts=("transactions_end", "producers_are_described"),
        path="*/last_timestamp",
        ours="now",
        reason="the time of the producer's last request; Kafka gives the time of its last record",
    ),
    Explanation(
        scripts=("transactions_end",),
        path="*/coordinator_epoch",
        ours="0",
        theirs="-1",
        reason="the coordinator's epoch is known; Kafka learns it from the first marker",
    ),
    Explanation(
        scripts=("offsets_of_transactions_are_checked",),
        label="unknown name",
        ours="49",
        theirs="0",
        reason="the transactional id is always looked at; Kafka goes by the producer once its "
        "transaction includes the group",
    ),
    Explanation(
        scripts=("offsets_of_transactions_are_checked",),
        label="no name",
        ours="42",
        theirs="0",
        reason="the same",
    ),
    Explanation(
        scripts=("groups_are_added",),
        label="no group",
        ours="24",
        theirs="0",
        reason="the empty group can have offsets, but no transaction: clients refuse it themselves",
    ),
    Explanation(
        scripts=("markers_are_written_by_hand",),
        label="old epoch",
        ours="47",
        theirs="-1",
        reason="a marker of an older epoch has a code; Kafka fails with UNKNOWN_SERVER_ERROR",
    ),
)


def explanations_of(script: str) -> list[Explanation]:
    """Give those that speak of a script."""
    return [one for one in (*EXPLANATIONS, *VARIANTS_EXPLAINED) if script in one.scripts]
