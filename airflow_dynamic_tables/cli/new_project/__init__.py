"""The project that init writes: its files, as they will stand in the folder, and who writes them."""
