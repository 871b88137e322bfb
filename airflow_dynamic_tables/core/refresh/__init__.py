"""Values of one refresh: plan and result, reasons, steps, expectations, sources and their changes, Spark settings."""
