#!/usr/bin/env python3
"""Replays an exported trace on a Dask cluster.

    sunder_dask.py --scheduler tcp://HOST:8786 TABLES -o result.json

TABLES is what `sunder trace export` wrote, at a path that this machine and all workers see. Each
task hands the folder of one bucket to the program `sunder`, which must be on every worker, and
returns its JSON; they are merged here. A task that is lost with its worker is run again elsewhere,
and gives the same. Options after `--` go to `sunder simulate`.
"""

import argparse
import json
import pathlib
import shlex
import subprocess
import tempfile


def replay(sunder, bucket, options):
    """Replays one bucket; run by the workers."""
    command = [sunder, "simulate", "--quiet", bucket, *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)}: {done.stderr.strip()}")
    return done.stdout


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", type=pathlib.Path, help="the folder of an export")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, help="the result")
    parser.add_argument("--scheduler", required=True, help="address of the scheduler")
    parser.add_argument("--sunder", default="sunder", help="the program, here and on the workers")
    parser.add_argument("--retries", type=int, default=3, help="for a task that fails")
    parser.add_argument("--reproducible", action="store_true", help="see sunder merge")
    parser.add_argument("options", nargs="*", help="for sunder simulate, after --")
    return parser.parse_args()


def main():
    from dask.distributed import Client, as_completed

    asked = arguments()
    tables = asked.tables.resolve()
    count = len(json.loads((tables / "trace.json").read_text())["rows"])
    with Client(asked.scheduler) as client, tempfile.TemporaryDirectory() as folder:
        tasks = [
            client.submit(
                replay,
                asked.sunder,
                str(tables / f"bucket={bucket:02}"),
                asked.options,
                key=f"bucket-{bucket:02}-{tables.name}",
                pure=False,
                retries=asked.retries,
            )
            for bucket in range(count)
        ]
        files = []
        # A part is written down as it comes, so that the cluster need not keep it.
        for task in as_completed(tasks):
            file = pathlib.Path(folder) / f"{len(files)}.json"
            file.write_text(task.result())
            files.append(str(file))
        also = ["--reproducible"] if asked.reproducible else []
        command = [asked.sunder, "merge", "--format", "json", *also, "-o", str(asked.output)]
        subprocess.run([*command, *files], check=True)


if __name__ == "__main__":
    main()
