"""Sensors on dynamic tables. No decisions here."""
