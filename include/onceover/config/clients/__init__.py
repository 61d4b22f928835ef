"""How a cluster is reached: client keys, Connections, hosts."""
