"""Subscriptions: cursors shared by consumers, and which consumer gets which records.

Rule: a subscription is one cursor of one partition and its consumers; deliveries are decided in
pure states, under the cursor's revision. Other packages import the modules.
Must not know: topics, offsets, connections, how messages travel.
"""
