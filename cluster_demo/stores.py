"""What servers without disks keep their data in: PostgreSQL with a synchronous standby, and S3.

Rule: both are real servers, in temporary folders and on loopback; they end with the context.
Must not know: the servers of the cluster.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from compat_tests.servers import ClusterStores
from compat_tests.servers.s3_servers import VersityGateway
from tests.postgres_server import PostgresServer

DATABASE: Final = "kledger"
BUCKET: Final = "kledger"
STANDBY: Final = "standby"
SYNCED: Final = {"fsync": "on", "full_page_writes": "on", "autovacuum": "on"}


@contextmanager
def running_stores(folder: Path) -> Iterator[ClusterStores]:
    """Start the servers with an empty database and an empty bucket.

    Args:
        folder: for the objects.
    """
    with ExitStack() as stack:
        objects = stack.enter_context(VersityGateway(folder))
        objects.make_bucket(BUCKET)
        primary, standby = PostgresServer(), PostgresServer()
        stack.callback(primary.remove)
        stack.callback(standby.remove)
        primary.initialise()
        primary.start(**SYNCED)
        primary.execute(f"CREATE DATABASE {DATABASE}")
        standby.initialise_standby(primary, STANDBY)
        standby.start(**SYNCED)
        # Not before: no commit is answered without the standby from now on.
        primary.execute(
            f"ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'", "SELECT pg_reload_conf()"
        )
        yield ClusterStores(
            url=primary.url(DATABASE),
            store=f"s3://{BUCKET}/cluster",
            settings={
                f"offload.options.{name}": value
                # As texts: they go through command lines.
                for name, value in {**objects.options, "allow_http": "true"}.items()
            },
        )
