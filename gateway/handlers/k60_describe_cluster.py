"""DescribeCluster, key 60, versions 0-2.

Behaviour:
- A single server is the only broker and the controller.
- Every client gets an answer; the authorized operations are 0 for a client that may not describe
  the cluster.
- Endpoint type 1 (brokers) is served; 2 (controllers) is MISMATCHED_ENDPOINT_TYPE, as a broker
  answers; any other is UNSUPPORTED_ENDPOINT_TYPE.

Version notes:
- v1 adds the endpoint type (KIP-919), v2 fenced brokers (KIP-1073): none here.
"""

from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

KEY = 60
MIN_VERSION = 0
MAX_VERSION = 2

BROKERS = 1
CONTROLLERS = 2


def handle(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Name the brokers."""
    services = context.services
    if request.endpoint_type != BROKERS:
        code = (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if request.endpoint_type == CONTROLLERS
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        )
        return DescribeClusterResponse(
            error_code=code,
            error_message=f"The request was sent to an endpoint of type BROKER ({BROKERS}), "
            f"got endpoint type {request.endpoint_type}",
        )
    response = DescribeClusterResponse(
        cluster_id=services.config.cluster_id,
        controller_id=services.brokers.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=broker_id, host=host, port=port)
            for broker_id, host, port in services.brokers.all(context.advertised)
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = context.visible_cluster_operations()
    return response
