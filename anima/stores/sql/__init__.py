"""Catalog and Ledger in SQL: SQLite embedded, PostgreSQL in a cluster."""

from anima.stores.sql.catalog import SqlCatalog
from anima.stores.sql.engine import open_engine, sqlite_url
from anima.stores.sql.ledger import SqlLedger

__all__ = ["SqlCatalog", "SqlLedger", "open_engine", "sqlite_url"]
