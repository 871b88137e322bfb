"""The query of a refresh: settings that determine its meaning, and checks that it only reads bound tables."""
