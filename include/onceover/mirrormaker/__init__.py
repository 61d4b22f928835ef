"""MirrorMaker 2's own records, written beside a copy for programs that read those."""
