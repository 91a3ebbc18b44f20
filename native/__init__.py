"""The native façade: producers, consumers, readers and their server side, in Pulsar's terms.

Rule: the client reaches the server through `native.broker` alone, in the same process or over a
connection.
Must not know: the Kafka façade.
"""
