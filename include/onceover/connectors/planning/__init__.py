"""Looking at a connector, and what moving its offsets would do."""
