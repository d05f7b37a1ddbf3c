"""What one API replica holds open."""

from __future__ import annotations

import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass

import faiss

from configs.settings import RecallSettings, Settings
from memory.errors import Misconfigured
from memory.ports import Embedder, Summarizer, TokenCounter
from memory.terms import Analyzer
from serve.acceptance import Acceptance
from serve.access import AccessBuffer
from serve.metrics import Metrics
from serve.recall import Recall
from serve.resident.cache import ResidentCache
from serve.resident.index import ResidentIndex
from stores.models.embedder import open_embedder
from stores.models.stemming import language
from stores.models.summarizer import open_summarizer
from stores.models.tokens import BpeCounter
from stores.postgres.access import AccessStore
from stores.postgres.agents import AgentStore
from stores.postgres.database import Database
from stores.postgres.ledger import LedgerStore
from stores.postgres.memories import MemoryStore
from stores.postgres.quarantine import QuarantineStore
from stores.postgres.recall import RecallStore
from stores.postgres.resident import ResidentStore
from stores.postgres.skills import SkillStore
from stores.valkey.connection import Valkey, open_valkey
from stores.valkey.ingest import IngestStreams, Listener
from stores.valkey.working import WorkingMemoryStore


@dataclass(frozen=True, kw_only=True)
class Services:
    """Stores, models and background tasks, all open."""

    settings: Settings
    metrics: Metrics
    database: Database
    streams: IngestStreams
    working: WorkingMemoryStore
    acceptance: Acceptance
    memories: MemoryStore
    quarantine: QuarantineStore
    skills: SkillStore
    agents: AgentStore
    ledger: LedgerStore
    access: AccessBuffer
    recall: Recall
    embedder: Embedder
    tokens: TokenCounter
    summarizer: Summarizer


async def open_services(settings: Settings, stack: AsyncExitStack) -> Services:
    """Open everything; ``stack`` closes it in reverse order. Raises ``Unavailable`` or ``Misconfigured``."""
    if settings.postgres_dsn is None or settings.redis_url is None:
        raise Misconfigured(
            "set MNEMORAY_POSTGRES_DSN and MNEMORAY_REDIS_URL; 'mnemoray up' does it for its own servers"
        )
    database = Database(settings.postgres_dsn, pool_size=settings.postgres_pool_size)
    await database.open()
    stack.push_async_callback(database.close)
    valkey = open_valkey(settings.redis_url, cluster=settings.redis_cluster)
    stack.push_async_callback(valkey.aclose)
    listener = Listener(valkey, channel=f"mnemoray:replies:{uuid.uuid4().hex}")
    await listener.open()
    stack.push_async_callback(listener.close)
    access = AccessBuffer(AccessStore(database), flush_s=settings.recall.access_flush_s)
    access.open()
    stack.push_async_callback(access.close)
    faiss.omp_set_num_threads(1)  # searches run side by side; one that waits for helpers would only be slower
    metrics, tokens = Metrics(), BpeCounter()
    embedder = open_embedder(settings.embedding, query_cache_size=settings.recall.query_cache_size)
    stack.push_async_callback(embedder.aclose)
    summarizer = open_summarizer(settings.models, tokens, count=metrics.observe_attempt, stack=stack)
    services = _wire(settings, database, valkey, listener, access, metrics, tokens, embedder, summarizer)
    stack.push_async_callback(services.recall.residents.close)
    return services


def _wire(
    settings: Settings,
    database: Database,
    valkey: Valkey,
    listener: Listener,
    access: AccessBuffer,
    metrics: Metrics,
    tokens: TokenCounter,
    embedder: Embedder,
    summarizer: Summarizer,
) -> Services:
    ledger = LedgerStore(database)
    streams = IngestStreams(valkey, ingest=settings.ingest, working=settings.working)
    working = WorkingMemoryStore(valkey, settings.working)
    return Services(
        settings=settings,
        metrics=metrics,
        database=database,
        streams=streams,
        working=working,
        acceptance=Acceptance(
            streams,
            listener,
            ledger,
            partitions=settings.partitions,
            wait_timeout_s=settings.ingest.wait_timeout_s,
        ),
        memories=MemoryStore(database),
        quarantine=QuarantineStore(database),
        skills=SkillStore(database),
        agents=AgentStore(database),
        ledger=ledger,
        access=access,
        recall=_recall(settings.recall, database, working, embedder, access, metrics),
        embedder=embedder,
        tokens=tokens,
        summarizer=summarizer,
    )


def _recall(
    settings: RecallSettings,
    database: Database,
    working: WorkingMemoryStore,
    embedder: Embedder,
    access: AccessBuffer,
    metrics: Metrics,
) -> Recall:
    analyzer = Analyzer(language(settings.language))
    resident = ResidentStore(database, model=embedder.model, dimension=embedder.dimension)
    residents = ResidentCache(
        resident, lambda: ResidentIndex(dimension=embedder.dimension, analyzer=analyzer), metrics, settings
    )
    store = RecallStore(database, settings)
    return Recall(store, resident, residents, working, embedder, analyzer, access, metrics, settings)
