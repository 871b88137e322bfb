"""One suite for each interface; every implementation joins by one line in the folder's ``conftest.py``."""
