"""The functions of the commands, called with the parsed arguments. No decisions here."""
