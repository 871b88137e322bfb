"""What holds for every table of a file, or of all files of a folder, that does not say otherwise."""

from __future__ import annotations

from airflow_dynamic_tables.definitions.declarations.base import PlainName
from airflow_dynamic_tables.definitions.declarations.settings import Settings


class DefaultsDeclaration(Settings):
    """What holds for every table that does not say otherwise; options, params and Spark settings are merged key by key."""

    catalog: PlainName | None = None
    """Catalog of names that have less than three parts."""
    database: PlainName | None = None
    """Database of names that have one part."""

    def over(self, farther: DefaultsDeclaration) -> DefaultsDeclaration:
        """Both together, as a table has its own and them: what this one says wins, tags are added."""
        said = {name: getattr(self, name) for name in self.model_fields_set}
        merged = {
            "options": {**farther.options, **self.options},
            "spark": self.spark.over(farther.spark),
            "continuous": self.continuous.over(farther.continuous),
            "tags": (*farther.tags, *self.tags),
            "params": {**farther.params, **self.params},
        }
        return farther.model_copy(update={**said, **merged})
