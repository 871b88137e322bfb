"""Where rows go that become no files: tables of database servers, and what definitions may say of the way there."""
