"""Servers as processes: kledger, and Apache Kafka as the reference, behind one interface."""

from compat_tests.servers.apache_kafka import ApacheKafkaServer
from compat_tests.servers.cluster import ClusterServer, ClusterStores
from compat_tests.servers.kledger import KledgerServer
from compat_tests.servers.nodes import NodesServer
from compat_tests.servers.process import ServerFailed, ServerProcess

__all__ = [
    "ApacheKafkaServer",
    "ClusterServer",
    "ClusterStores",
    "KledgerServer",
    "NodesServer",
    "ServerFailed",
    "ServerProcess",
]
