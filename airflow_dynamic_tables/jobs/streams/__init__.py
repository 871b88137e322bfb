"""How the job of a stream reads its sources: as files that come, or by feeds that its worker writes."""
