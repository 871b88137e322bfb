"""Victims, watchers and the truth they are held against."""
