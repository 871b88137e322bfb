"""Events of OpenLineage: the methods of operators, and the facets of a refresh."""
