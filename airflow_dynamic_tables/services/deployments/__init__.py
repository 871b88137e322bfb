"""Comparing definitions with what is deployed, applying them, and declaring tables by statements."""
