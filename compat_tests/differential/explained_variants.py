"""What differs on purpose when one field of a good request is changed, and why.

Rule: as in `explained`: every line is a difference that the scripts show today.
"""

from __future__ import annotations

from typing import Final

from compat_tests.differential.differences import Explanation


def _of(*apis: str) -> tuple[str, ...]:
    return tuple(f"variants of {one}" for one in apis)


VARIANTS_EXPLAINED: Final[tuple[Explanation, ...]] = (
    # Empty and repeated questions.
    Explanation(
        scripts=_of(
            "ListOffsets",
            "OffsetCommit",
            "DeleteRecords",
            "TxnOffsetCommit",
            "OffsetDelete",
        ),
        label="*.partitions=[[]]",
        theirs="[[]]",
        reason="a topic without partitions is answered by one without; Kafka leaves it out",
    ),
    Explanation(
        scripts=_of("OffsetCommit", "AlterReplicaLogDirs"),
        label="*.partitions=[[]]",
        theirs="missing",
        reason="the same",
    ),
    Explanation(
        scripts=_of("ListOffsets", "DeleteRecords", "AlterReplicaLogDirs"),
        label="* twice",
        reason="what stands twice is answered twice; Kafka answers it once",
    ),
    Explanation(
        scripts=_of("WriteTxnMarkers"),
        label="markers twice",
        theirs="missing",
        reason="the same",
    ),
    Explanation(
        scripts=_of("WriteTxnMarkers"),
        label="markers.topics*=[[]]",
        theirs="missing",
        reason="a marker without partitions is answered by one without; Kafka leaves it out",
    ),
    # Topics.
    Explanation(
        scripts=_of("Metadata"),
        label="topics.topic_id=*",
        versions=(10, 11),
        reason="topics are found by id as soon as the request has a field for it; Kafka refuses "
        "the whole request before version 12",
    ),
    Explanation(
        scripts=_of("Metadata"),
        label="topics.name=null",
        reason="a topic without name and id is refused for itself; Kafka fails the whole request",
    ),
    Explanation(
        scripts=_of("DescribeTopicPartitions"),
        label="topics.name=''",
        reason="a bad name is one; Kafka fails with UNKNOWN_SERVER_ERROR",
    ),
    Explanation(
        scripts=_of("CreateTopics"),
        label="topics.num_partitions=2147483647",
        ours="37",
        theirs="44",
        reason="a topic may have 100,000 partitions; Kafka limits those of a request, by a policy",
    ),
    *(
        Explanation(
            scripts=_of("CreateTopics", "DescribeConfigs"),
            path=f"*/configs/{names}*",
            theirs="missing",
            reason="settings of its own, which Kafka has not",
        )
        for names in ("kledger.", "compaction.strategy")
    ),
    # Groups.
    Explanation(
        scripts=_of("JoinGroup"),
        label="group_instance_id=*",
        reason="an id that was given to no instance is unknown by its name; Kafka fails with "
        "UNKNOWN_SERVER_ERROR, and forgets the id in its answer",
    ),
    Explanation(
        scripts=_of("ConsumerGroupHeartbeat"),
        path="member_epoch",
        ours="epoch *",
        theirs="epoch *",
        reason="Kafka grows the epoch once more when it first sees the topics of a group",
    ),
    # Transactions.
    Explanation(
        scripts=_of("AddOffsetsToTxn"),
        label="group_id=''",
        ours="24",
        theirs="0",
        reason="the empty group can have offsets, but no transaction: clients refuse it themselves",
    ),
    Explanation(
        scripts=_of("WriteTxnMarkers"),
        path="*/error_code",
        theirs="-1",
        reason="ids, epochs and versions below zero have codes; Kafka fails with "
        "UNKNOWN_SERVER_ERROR",
    ),
    Explanation(
        scripts=_of("WriteTxnMarkers"),
        label="markers.*=-2",
        path="*/error_code",
        ours="4[29]",
        theirs="0",
        reason="the same; of -2 Kafka writes a marker",
    ),
    # The cluster.
    Explanation(
        scripts=_of("DescribeAcls", "CreateAcls", "DeleteAcls"),
        label="*=0",
        theirs="closed",
        reason="there is no authorizer, whatever is asked; Kafka cannot read the unknown type and "
        "hangs up",
    ),
    Explanation(
        scripts=_of("CreateDelegationToken"),
        label="owner_principal_type=null",
        reason="tokens are refused, without a name too; Kafka fails with UNKNOWN_SERVER_ERROR",
    ),
    Explanation(
        scripts=_of("DescribeQuorum"),
        path="*/leader_epoch",
        ours="0",
        reason="there is no election here; Kafka counts those of its controller",
    ),
    Explanation(
        scripts=_of("DescribeQuorum"),
        path="*/high_watermark",
        reason="changes of topics since the start; Kafka counts the records of its metadata log",
    ),
    Explanation(
        scripts=_of("DescribeQuorum"),
        path="*/log_end_offset",
        reason="the same",
    ),
    Explanation(
        scripts=_of("DescribeQuorum"),
        path="nodes/1/listeners/*",
        reason="there is one listener; Kafka has another one for its controller",
    ),
)
