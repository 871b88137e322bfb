"""The command that runs unit tests, and what it says of them."""
