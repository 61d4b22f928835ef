"""Record batches (magic 2): their header, codecs, records and columns, and who may see them. Pure."""
