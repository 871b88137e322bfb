"""Who has tables refreshed at their ticks: a client for each scheduler of workflows, found by the registry. No catalog here."""
