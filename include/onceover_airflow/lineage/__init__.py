"""What a catalogue of lineage is told of a flow: OpenLineage events."""
