"""MirrorMaker 2's own configuration, read as flow files and client settings."""
