"""The routes: a question checked, a service called, its result answered. No decisions here."""
