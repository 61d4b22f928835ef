"""Records as the audit reads them, with code of its own."""
