"""Values and decisions: no server, no clock."""
