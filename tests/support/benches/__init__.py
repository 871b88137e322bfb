"""Tables to work on, with everything they need."""
