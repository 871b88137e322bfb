"""Delta tables as their logs have them."""
