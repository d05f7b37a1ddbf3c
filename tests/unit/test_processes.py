"""The record of children: a pid alone proves nothing."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import psutil

from cluster.paths import DataDir
from cluster.processes import FREE_PORTS, Record, free_port, started


def record(file: Path, pid: int, since: float | None) -> Record:
    file.write_text(json.dumps({"server": [pid, since]}))
    return Record(file)


def test_a_child_that_runs_is_found(tmp_path: Path) -> None:
    found = Record(tmp_path / "processes.json")
    found.write({"server": os.getpid()})
    assert found.read() == {"server": os.getpid()}
    assert found.sessions() == [os.getpid()]


def test_a_pid_that_somebody_else_has_now_is_not_a_child(tmp_path: Path) -> None:
    since = started(os.getpid())
    assert since is not None
    found = record(tmp_path / "processes.json", os.getpid(), since - 5)
    assert found.read() == {}
    assert found.sessions() == []


def test_a_dead_leader_counts_until_the_machine_starts_again(tmp_path: Path) -> None:
    dead = next(pid for pid in range(4_000_000, 2, -1) if not psutil.pid_exists(pid))
    assert record(tmp_path / "now.json", dead, psutil.boot_time() + 5).sessions() == [dead]
    assert record(tmp_path / "before.json", dead, psutil.boot_time() - 3_600).sessions() == []


def test_no_record_and_a_damaged_one_are_empty(tmp_path: Path) -> None:
    assert Record(tmp_path / "nothing.json").sessions() == []
    (tmp_path / "damaged.json").write_text("{")
    assert Record(tmp_path / "damaged.json").read() == {}


def test_free_ports_lie_outside_the_ephemeral_range() -> None:
    assert free_port() in FREE_PORTS


def test_a_secret_is_made_once_and_for_its_owner(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    data.create()
    secret = data.secret("api_key")
    assert len(secret) >= 40
    assert data.secret("api_key") == secret
    assert stat.S_IMODE((data.secrets / "api_key").stat().st_mode) == 0o600
