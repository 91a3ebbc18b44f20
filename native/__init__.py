"""The native façade: producers, consumers, readers and their server side, in Pulsar's words.

Rule: the client knows the server by `native.broker` alone; whether that is in the same process or
behind a connection makes no difference to it.
Must not know: the Kafka façade.
"""
