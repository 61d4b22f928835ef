"""``make up``: what runs detached on this machine, started, shown and ended for one caller at a time."""
