"""A cluster of nodes without disks; several servers divide its nodes among them.

Rule: a node is a broker to its clients; a server is a process that owns several nodes. Servers of
other kinds do not import this package.
"""
