"""The one list of APIs: the server serves and advertises these keys and no others.

Rule: one line per API key. A handler module `kNN_name` has KEY, MIN_VERSION and MAX_VERSION equal
to its line, and one of
  `def handle(context, request)`        answers at once: the response object, or its encoded body;
  `async def handle(context, request)`  may wait: it runs as a task, and later requests of its
                                        connection start after it;
  `def bind(services)`                  returns a `handle` of either kind that keeps a state;
  `def make_handler(services)`          Produce and Fetch, which work on the frame
                                        (`gateway.net.router`).
Keys that one node has nothing to do for are rows of `handlers/single_node`.
Modules are imported when the first request of their key arrives, which keeps the start short.
Must not know: what handlers do. Handlers never import each other.
"""

from importlib import import_module
from typing import Any, NamedTuple


class HandlerSpec(NamedTuple):
    """One API key: the versions that are served, and the lowest that is advertised."""

    key: int
    min_version: int
    max_version: int
    advertised_min: int
    module: str
    """The stem shared by handler, message schema and test."""
    is_single_node: bool = False
    """Whether the handler is a row of `handlers/single_node` and has no module of its own."""

    def load(self) -> Any:
        """Import the handler: its module, or its row of the single node's answers."""
        if self.is_single_node:
            return import_module("kledger.gateway.handlers.single_node").ANSWERS[self.key]
        return import_module(f"kledger.gateway.handlers.{self.module}")


def _spec(
    key: int, min_version: int, max_version: int, module: str, *, advertised_min: int | None = None
) -> HandlerSpec:
    lowest = min_version if advertised_min is None else advertised_min
    return HandlerSpec(key, min_version, max_version, lowest, module)


def _single_node(key: int, min_version: int, max_version: int, module: str) -> HandlerSpec:
    return HandlerSpec(key, min_version, max_version, min_version, module, is_single_node=True)


# Produce is advertised from 0: with another minimum librdkafka 2.0.2 turns compression off
# (KAFKA-18659). Served versions start at 3, as in Kafka 4.
HANDLERS: tuple[HandlerSpec, ...] = (
    _spec(0, 3, 13, "k00_produce", advertised_min=0),
    _spec(1, 4, 18, "k01_fetch"),
    _spec(2, 1, 11, "k02_list_offsets"),
    _spec(3, 0, 13, "k03_metadata"),
    _spec(8, 2, 10, "k08_offset_commit"),
    _spec(9, 1, 10, "k09_offset_fetch"),
    _spec(10, 0, 6, "k10_find_coordinator"),
    _spec(11, 0, 9, "k11_join_group"),
    _spec(12, 0, 4, "k12_heartbeat"),
    _spec(13, 0, 5, "k13_leave_group"),
    _spec(14, 0, 5, "k14_sync_group"),
    _spec(15, 0, 6, "k15_describe_groups"),
    _spec(16, 0, 5, "k16_list_groups"),
    _spec(17, 0, 1, "k17_sasl_handshake"),
    _spec(18, 0, 4, "k18_api_versions"),
    _spec(19, 2, 7, "k19_create_topics"),
    _spec(20, 1, 6, "k20_delete_topics"),
    _spec(21, 0, 2, "k21_delete_records"),
    _spec(22, 0, 5, "k22_init_producer_id"),
    _spec(23, 2, 4, "k23_offset_for_leader_epoch"),
    _spec(24, 0, 5, "k24_add_partitions_to_txn"),
    _spec(25, 0, 4, "k25_add_offsets_to_txn"),
    _spec(26, 0, 5, "k26_end_txn"),
    _spec(27, 1, 2, "k27_write_txn_markers"),
    _spec(28, 0, 5, "k28_txn_offset_commit"),
    _spec(29, 1, 3, "k29_describe_acls"),
    _spec(30, 1, 3, "k30_create_acls"),
    _spec(31, 1, 3, "k31_delete_acls"),
    _spec(32, 1, 4, "k32_describe_configs"),
    _spec(33, 0, 2, "k33_alter_configs"),
    _single_node(34, 1, 2, "k34_alter_replica_log_dirs"),
    _spec(35, 1, 5, "k35_describe_log_dirs"),
    _spec(36, 0, 2, "k36_sasl_authenticate"),
    _spec(37, 0, 3, "k37_create_partitions"),
    _spec(38, 1, 3, "k38_create_delegation_token"),
    _spec(39, 1, 2, "k39_renew_delegation_token"),
    _spec(40, 1, 2, "k40_expire_delegation_token"),
    _spec(41, 1, 3, "k41_describe_delegation_token"),
    _spec(42, 0, 2, "k42_delete_groups"),
    _single_node(43, 0, 2, "k43_elect_leaders"),
    _spec(44, 0, 1, "k44_incremental_alter_configs"),
    _single_node(45, 0, 1, "k45_alter_partition_reassignments"),
    _single_node(46, 0, 0, "k46_list_partition_reassignments"),
    _spec(47, 0, 0, "k47_offset_delete"),
    _spec(48, 0, 1, "k48_describe_client_quotas"),
    _spec(49, 0, 1, "k49_alter_client_quotas"),
    _spec(50, 0, 0, "k50_describe_user_scram_credentials"),
    _spec(51, 0, 0, "k51_alter_user_scram_credentials"),
    _single_node(55, 0, 2, "k55_describe_quorum"),
    _spec(57, 0, 2, "k57_update_features"),
    _spec(60, 0, 2, "k60_describe_cluster"),
    _spec(61, 0, 0, "k61_describe_producers"),
    _spec(65, 0, 0, "k65_describe_transactions"),
    _spec(66, 0, 2, "k66_list_transactions"),
    _spec(68, 0, 1, "k68_consumer_group_heartbeat"),
    _spec(69, 0, 1, "k69_consumer_group_describe"),
    _spec(71, 0, 0, "k71_get_telemetry_subscriptions"),
    _spec(72, 0, 0, "k72_push_telemetry"),
    _spec(74, 0, 1, "k74_list_config_resources"),
    _spec(75, 0, 0, "k75_describe_topic_partitions"),
)

HANDLERS_BY_KEY: dict[int, HandlerSpec] = {spec.key: spec for spec in HANDLERS}
