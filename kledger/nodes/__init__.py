"""A cluster without disks that several servers own together, node by node.

Rule: nothing of it is loaded by a server of another kind. A node is to clients a broker; a server
is a process, which owns several nodes.
"""
