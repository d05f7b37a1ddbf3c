"""Valkey or Redis: working memory, ingest streams, revisions and hot skills."""
