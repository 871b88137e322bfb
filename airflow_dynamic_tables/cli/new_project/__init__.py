"""The project that init writes."""
