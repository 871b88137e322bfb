"""Tables in continuous mode: the loop, and the strategies of one turn."""
