"""The demonstration of a cluster: three brokers without disks, of which one is killed."""
