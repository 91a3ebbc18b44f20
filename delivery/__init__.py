"""Delivery: an open partition with its subscriptions, for both façades.

Rule: what turns a log and its cursors into messages stands here once: what consumers may see, where
a seek target leads, how many records are unacknowledged. Other rooms import the modules.
Must not know: native clients, Kafka's groups, connections.
"""
