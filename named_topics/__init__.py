"""Named topics: subscriber groups over the channels of a topic, in the terms of Coherence.

Rule: a channel is a partition, an element is a committed record, a position is its offset.
Must not know: clients and how they are connected, the façades.
"""
