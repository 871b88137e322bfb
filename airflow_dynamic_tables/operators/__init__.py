"""Fields in, use case called, result out. No decisions here."""
