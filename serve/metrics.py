"""Prometheus metrics of one API replica."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """A registry of its own: two replicas in one process, as in tests, do not collide."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "mnemoray_http_requests", "Requests", ["method", "route", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "mnemoray_http_request_seconds",
            "Time to answer",
            ["method", "route"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._stages = Histogram(
            "mnemoray_recall_stage_seconds",
            "Time of each stage of a search",
            ["stage"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.pending = Gauge("mnemoray_ingest_pending", "Accepted writes that are not settled", registry=self.registry)
        self.lag = Gauge(
            "mnemoray_ingest_lag_seconds",
            "Age of the oldest accepted write that is not settled",
            registry=self.registry,
        )
        self.extraction_pending = Gauge(
            "mnemoray_extraction_pending", "Stored episodes that no model has read yet", registry=self.registry
        )
        self._attempts = Counter(
            "mnemoray_model_attempts",
            "Requests to language models, by outcome",
            ["model", "outcome"],
            registry=self.registry,
        )
        self.access_buffer = Gauge(
            "mnemoray_access_buffer", "Access statistics that wait to be written", registry=self.registry
        )

        self.resident_hits = self._counter("hits", "Searches answered by a resident index")
        self.resident_misses = self._counter("misses", "Searches that found no resident index")
        self.resident_loads = self._counter("loads", "Indexes loaded")
        self.resident_evictions = self._counter("evictions", "Indexes that left for want of room")
        self.resident_deltas = self._counter("deltas", "Times an index caught up with changes")
        self.resident_bytes = Gauge("mnemoray_resident_bytes", "Bytes of resident indexes", registry=self.registry)
        self.resident_indexes = Gauge("mnemoray_resident_indexes", "Resident indexes", registry=self.registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"mnemoray_resident_{name}", text, registry=self.registry)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Observe the time that the block takes."""
        started = perf_counter()
        yield
        self.observe_stage(name, perf_counter() - started)

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def observe_stage(self, stage: str, seconds: float) -> None:
        self._stages.labels(stage).observe(seconds)

    def observe_attempt(self, model: str, outcome: str) -> None:
        self._attempts.labels(model, outcome).inc()

    def render(self) -> bytes:
        return generate_latest(self.registry)
