"""Dynamic tables: catalog entries, workflows, versions read, rollback."""
