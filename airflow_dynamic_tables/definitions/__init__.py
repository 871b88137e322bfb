"""What users declare: YAML to frozen, checked models. Knows nothing of catalogs, ledgers or staging."""
