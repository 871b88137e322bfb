"""Stand-ins for schedulers: real HTTP servers that hold every request against the published description of the API."""
