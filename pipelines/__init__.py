"""Batch jobs and the files they read: conversations to import, re-embedding, erasure, evaluation.

Parsers here do no I/O besides reading the file they are given; jobs on Ray Data are submitted by ``cluster``.
"""
