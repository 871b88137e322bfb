"""Tables: suspended, resumed, renamed, dropped, recovered."""
