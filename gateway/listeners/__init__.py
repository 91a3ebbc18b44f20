"""Listeners: which addresses the gateway listens on, and how clients authenticate there.

Rule: what is wrong with a setting of security ends the start; nothing is left open instead.
Must not know: connections, requests.
"""
