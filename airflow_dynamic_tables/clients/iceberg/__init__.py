"""PyIceberg catalogs of all kinds, and the types and content of their tables; data commits are not implemented here."""
