"""Reads what data_pipeline wrote: sample rows and the context store."""

from disco_rl.data.rows import load_rows
from disco_rl.data.store import ContextStore, StoredContext, StoreError, StoreInfo

__all__ = ["ContextStore", "StoreError", "StoreInfo", "StoredContext", "load_rows"]
