"""``mnemoray down``: stop a running system."""

from __future__ import annotations

import psutil

from cluster.console import DataDirOption, JsonOption, data_dir, errors_explained, out, print_json
from cluster.supervisor import endpoint
from memory.errors import Unavailable

TIMEOUT_S = 60.0


def down(data_dir_: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Stop the system that runs in a data directory. Its data stays."""
    with errors_explained():
        data = data_dir(data_dir_)
        pid = int(str(endpoint(data)["supervisor"]))
        try:
            process = psutil.Process(pid)
            process.terminate()
            process.wait(TIMEOUT_S)
        except psutil.NoSuchProcess:
            data.endpoint.unlink(missing_ok=True)
        except psutil.TimeoutExpired as exc:
            raise Unavailable(f"process {pid} did not stop in {TIMEOUT_S:.0f} s") from exc
    if as_json:
        print_json({"stopped": True, "data_dir": str(data.root)})
    else:
        out.print(f"stopped; the data stays in {data.root}", markup=False)
