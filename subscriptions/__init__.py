"""Places kept by cursors: who gets which message of a subscription, and what they still owe.

Rule: a subscription is one cursor of one partition and the consumers that share it; what is handed
out is decided in plain states, under the cursor's revision. Other rooms import from here.
Must not know: topics, offsets, connections, how messages travel.
"""
