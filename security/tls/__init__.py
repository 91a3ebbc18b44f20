"""TLS: keys and certificates of this server, and the principals of clients with certificates.

Rule: key material is read from the settings or their files, and never logged.
Must not know: connections, gRPC, listeners.
"""
