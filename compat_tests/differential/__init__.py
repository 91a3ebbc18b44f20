"""The same requests to kledger and to Apache Kafka, answer against answer.

`scripts` and the `*_scripts` modules say what is asked (`generated_scripts` out of `recipes` and
`variants`, from the schemas), `side` asks it of one server, `masks` takes
out of an answer what no two servers have in common, `differences` compares, and `explained` is the
table of what differs on purpose.
"""

from compat_tests.differential import (  # noqa: F401 (they put their scripts on the list)
    broker_scripts,
    config_scripts,
    consumer_scripts,
    defaults_scripts,
    fetch_scripts,
    generated_scripts,
    group_scripts,
    log_scripts,
    mixed_scripts,
    produce_scripts,
    quota_scripts,
    telemetry_scripts,
    topic_scripts,
    txn_scripts,
)
