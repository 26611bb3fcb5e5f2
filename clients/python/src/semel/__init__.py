"""Durable workflows on a Semel server: every effect takes place once."""

from ._client import AsyncRun, AsyncSemel, AsyncStarted, RunFailed, Semel, SyncRun, SyncStarted
from ._ctx import Attempt, Child, Ctx, Hook, Owner
from ._duration import Duration
from ._errors import Cancelled, Fail, SemelError, fatal, retry_after, uncertain
from ._retry import Retry
from ._worker import QueueTask, Worker
from ._workflow import Workflow, workflow

__all__ = [
    "AsyncRun", "AsyncSemel", "AsyncStarted", "Attempt", "Cancelled", "Child", "Ctx", "Duration", "Fail", "Hook", "Owner", "QueueTask",
    "Retry", "RunFailed", "Semel", "SemelError", "SyncRun", "SyncStarted", "Worker", "Workflow", "fatal", "retry_after", "uncertain", "workflow",
]
