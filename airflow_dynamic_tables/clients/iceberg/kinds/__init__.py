"""PyIceberg's clients of the kinds of Iceberg catalogs, where they are too trusting: each is imported when it is first used."""
