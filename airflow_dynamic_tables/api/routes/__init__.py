"""The routes: check the request, call a service, return its result."""
