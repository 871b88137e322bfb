"""Where rows go from their files: tables of database servers, and what definitions may say of the way there."""
