"""Deferred waiting: serialize and a poll loop. No decisions here."""
