"""The query of a refresh: the settings that give it one meaning, and the check that it only reads what it may."""
