"""The parsers of the commands, a module each: words, options, examples. None loads what only work needs."""
