"""The records that a flow keeps about itself: what each says, and whether it may be believed. Pure."""
