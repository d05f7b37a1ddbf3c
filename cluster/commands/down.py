"""``mnemoray down``: stop a running system."""

from __future__ import annotations

import psutil

from cluster.console import DataDirOption, JsonOption, data_dir, errors_explained, out, print_json
from cluster.processes import started
from cluster.supervisor import endpoint
from memory.errors import Misconfigured, Unavailable

TIMEOUT_S = 60.0


def down(data_dir_: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Stop the system that runs in a data directory. Its data stays."""
    with errors_explained():
        data = data_dir(data_dir_)
        found = endpoint(data)
        pid = int(str(found["supervisor"]))
        if started(pid) != found["started"]:  # killed, and its pid may be somebody else's now
            data.endpoint.unlink(missing_ok=True)
            raise Misconfigured(f"no instance runs in {data.root}; 'mnemoray up' clears what a killed one left")
        _stop(pid)
    if as_json:
        print_json({"stopped": True, "data_dir": str(data.root)})
    else:
        out.print(f"stopped; the data stays in {data.root}", markup=False)


def _stop(pid: int) -> None:
    try:
        process = psutil.Process(pid)
        process.terminate()
        process.wait(TIMEOUT_S)
    except psutil.NoSuchProcess:
        return
    except psutil.TimeoutExpired as exc:
        raise Unavailable(f"process {pid} did not stop in {TIMEOUT_S:.0f} s") from exc
