"""Python client of Mnemoray, a memory layer for AI agents.

``Mnemoray`` is synchronous, ``AsyncMnemoray`` asynchronous; both have the same verbs. Results are in
``mnemoray.results``, errors in ``mnemoray.errors``.
"""

from mnemoray._async.client import AsyncMnemoray
from mnemoray._retry import RetryPolicy
from mnemoray._sync.client import Mnemoray
from mnemoray.errors import ApiError, MnemorayError
from mnemoray.inputs import Fact, NewMemory

__all__ = ["ApiError", "AsyncMnemoray", "Fact", "Mnemoray", "MnemorayError", "NewMemory", "RetryPolicy"]
