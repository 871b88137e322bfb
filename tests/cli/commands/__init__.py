"""Commands in folders of their own; the other tests of commands are in the folder above."""
