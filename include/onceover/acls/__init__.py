"""Topic ACLs that follow the source's."""
