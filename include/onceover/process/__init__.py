"""Child processes that leave nothing behind, and the Java that they run on."""
