"""Parts of the one table of commands, by what they are about."""
