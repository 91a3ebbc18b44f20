"""The Kafka wire protocol as bytes and values: frames, headers, messages, error codes.

Rule: no I/O and no state; a record batch is opaque bytes here.
Must not know: our other packages, `batches` included.
"""
