"""PostgreSQL as a catalog: the tables of its databases, and dynamic tables among them."""
