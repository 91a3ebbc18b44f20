"""Named topics as a client sees them: publishers, subscribers, elements, in Coherence's terms.

Rule: the server owns commits and ownership, the client owns what it has pre-fetched and handed out.
Must not know: whether the server runs in this process.
"""
