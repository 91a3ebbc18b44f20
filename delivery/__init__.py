"""Delivery: an open partition with its subscriptions, for both façades.

Rule: this is the only code that turns a log and its cursors into messages: which records are
visible, where a seek target leads, how many are unacknowledged. Other packages import the modules.
Must not know: native clients, Kafka's groups, connections.
"""
