"""The functions of the commands, called with the parsed arguments."""
