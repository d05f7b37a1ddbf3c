"""What is changed in the configuration that Serve writes for HAProxy."""

from __future__ import annotations

from cluster.haproxy import on_loopback

WRITTEN = """\
global
    maxconn 4096
frontend prometheus
    bind :9101
    mode http
frontend http_frontend
    bind *:8787
    default_backend default_backend
backend http-mnemoray
    server one 127.0.0.1:30000 check
listen stats
  bind *:8404
  stats enable
"""


def test_statistics_and_metrics_move_to_loopback() -> None:
    changed = on_loopback(WRITTEN)
    assert "    bind 127.0.0.1:9101\n" in changed
    assert "  bind 127.0.0.1:8404\n" in changed


def test_nothing_else_is_changed() -> None:
    changed = on_loopback(WRITTEN)
    assert changed.replace("127.0.0.1:9101", ":9101").replace("127.0.0.1:8404", "*:8404") == WRITTEN


def test_a_second_time_changes_nothing() -> None:
    """A configuration is written once, and read by every start until it is written again."""
    assert on_loopback(on_loopback(WRITTEN)) == on_loopback(WRITTEN)
