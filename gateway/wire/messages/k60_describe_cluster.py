"""DescribeCluster, key 60: nodes of the cluster."""

from kledger.gateway.wire.schema import ApiMessage, Int8, Int16, Int32, Struct, field


class DescribeClusterRequest(ApiMessage, key=60, versions="0-2", flexible="0+"):
    """Which nodes to describe: brokers or controllers."""

    include_cluster_authorized_operations: bool = False
    endpoint_type: Int8 = field(versions="1+", default=1)
    include_fenced_brokers: bool = field(versions="2+", default=False)


class DescribeClusterBroker(Struct):
    """One node and its address."""

    broker_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
    is_fenced: bool = field(versions="2+", default=False)


class DescribeClusterResponse(ApiMessage, key=60, versions="0-2", flexible="0+"):
    """Nodes, cluster id and controller."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    endpoint_type: Int8 = field(versions="1+", default=1)
    cluster_id: str = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: Int32 = -2147483648


REQUEST = DescribeClusterRequest
RESPONSE = DescribeClusterResponse
