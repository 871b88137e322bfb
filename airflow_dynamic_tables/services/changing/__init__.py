"""What people, and failures, make of a dynamic table: suspended, resumed, renamed, dropped, recovered."""
