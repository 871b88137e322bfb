"""Tables: adopted, restored."""
