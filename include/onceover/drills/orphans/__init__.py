"""What an old source holds alone behind an unplanned switchover: looking, exporting, giving it free."""
