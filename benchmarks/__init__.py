"""Benchmarks: kledger beside Apache Kafka, the same programs against both, in one run."""
