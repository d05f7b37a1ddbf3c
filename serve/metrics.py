"""Prometheus metrics of one API replica."""

from __future__ import annotations

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
        self.access_buffer = Gauge(
            "mnemoray_access_buffer", "Access statistics that wait to be written", registry=self.registry
        )

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def observe_stage(self, stage: str, seconds: float) -> None:
        self._stages.labels(stage).observe(seconds)

    def render(self) -> bytes:
        return generate_latest(self.registry)
