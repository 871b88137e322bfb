"""What users declare: YAML and SQL to frozen, checked models. Knows nothing of catalogs, ledgers or staging."""
