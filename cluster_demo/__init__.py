"""The demonstration of a cluster: three servers without disks, of which one is killed."""
