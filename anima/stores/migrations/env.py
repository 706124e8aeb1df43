"""Alembic's environment: it runs inside the transaction of `migrate`."""

from alembic import context

from anima.stores.sql.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
