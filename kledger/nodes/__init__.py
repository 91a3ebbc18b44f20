"""Nodes: the brokers of a cluster without disks, several of which run in one process.

Doors: `NodesServer`. Nothing of it is imported by a server that has a data folder, or by one whose
cluster has one node. Reasons: docs/decisions/0047.
"""
