"""Tables that are folders of files, replaced file by file (atomicity: none)."""
