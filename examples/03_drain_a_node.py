"""Drain one node, like `kubectl drain --ignore-daemonsets --delete-emptydir-data`."""

import sys

from navarchos import Client
from navarchos.drain import DrainError, DrainOptions, EvictionResult, drain_node


def show(pod: str, result: EvictionResult) -> None:
    print(f"{pod}: {result.outcome}", flush=True)


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: 03_drain_a_node.py NODE", file=sys.stderr)
        return 2
    options = DrainOptions(ignore_daemon_sets=True, delete_empty_dir_data=True, timeout=300.0)
    with Client.from_config() as client:
        try:
            report = drain_node(client, sys.argv[1], options, on_progress=show)
        except DrainError as error:
            print(error, file=sys.stderr)
            return 1
    print(f"{report.node}: {len(report.evicted)} pods removed, {len(report.ignored)} ignored")
    return 0


if __name__ == "__main__":
    sys.exit(main())
