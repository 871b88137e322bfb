"""Tables that are refreshed all the time: the loop of turns, and the strategies that a turn may follow."""
