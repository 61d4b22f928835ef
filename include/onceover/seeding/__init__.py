"""Beginning a flow elsewhere than at a log's start: positions of groups, of other flows, of MirrorMaker 2."""
