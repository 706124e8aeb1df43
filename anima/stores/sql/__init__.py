"""Catalog, Ledger and Sessions in SQL: SQLite embedded, PostgreSQL in a cluster."""

from anima.stores.sql.catalog import SqlCatalog
from anima.stores.sql.conversations import SqlConversations
from anima.stores.sql.engine import open_engine, sqlite_url
from anima.stores.sql.ledger import SqlLedger
from anima.stores.sql.revisions import SqlRevisionUses
from anima.stores.sql.sessions import SqlSessions

__all__ = ["SqlCatalog", "SqlConversations", "SqlLedger", "SqlRevisionUses", "SqlSessions", "open_engine", "sqlite_url"]
