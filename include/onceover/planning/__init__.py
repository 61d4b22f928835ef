"""What every plan has in common: what it shows, who said yes to it, and the journal of what was done."""
