#!/usr/bin/env python3
"""Replays an exported trace on a Spark cluster.

    spark-submit --master spark://HOST:7077 sunder_spark.py TABLES -o result.json

TABLES is what `sunder trace export` wrote, at a path that driver and workers all see. Each task
hands the folder of one bucket to the program `sunder`, which must be on every worker, and returns
its JSON; the driver merges. Nothing is shuffled, and Spark reads no row. A task that is lost with
its executor is run again elsewhere, and gives the same.

Options after `--` go to `sunder simulate`. With `--try OPTIONS`, once for each other machine, every
bucket is replayed on these machines too, as further tasks, and `-o` names a folder: 0.json is the
machine of the options after `--`, 1.json that of the first `--try`, and so on.
"""

import argparse
import json
import pathlib
import shlex
import subprocess
import tempfile


def replay(task):
    """Replays one bucket on one machine; run by the workers. The machine's number, and the part."""
    sunder, bucket, machine, options = task
    command = [sunder, "simulate", "--quiet", bucket, *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)}: {done.stderr.strip()}")
    return machine, done.stdout


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", type=pathlib.Path, help="the folder of an export")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, help="the result")
    parser.add_argument("--sunder", default="sunder", help="the program, on driver and workers")
    parser.add_argument("--try", dest="tries", action="append", default=[], metavar="OPTIONS")
    parser.add_argument("--reproducible", action="store_true", help="see sunder merge")
    parser.add_argument("options", nargs="*", help="for sunder simulate, after --")
    return parser.parse_args()


def main():
    from pyspark.sql import SparkSession

    asked = arguments()
    tables = asked.tables.resolve()
    count = len(json.loads((tables / "trace.json").read_text())["rows"])
    buckets = [str(tables / f"bucket={bucket:02}") for bucket in range(count)]
    machines = [asked.options, *map(shlex.split, asked.tries)]
    tasks = [
        (asked.sunder, bucket, machine, options)
        for machine, options in enumerate(machines)
        for bucket in buckets
    ]
    spark = SparkSession.builder.appName(f"sunder {tables.name}").getOrCreate()
    try:
        parts = spark.sparkContext.parallelize(tasks, len(tasks)).map(replay).collect()
    finally:
        spark.stop()
    if asked.tries:
        asked.output.mkdir(exist_ok=True)
    for machine in range(len(machines)):
        of_machine = [part for number, part in parts if number == machine]
        output = asked.output / f"{machine}.json" if asked.tries else asked.output
        merge(asked, of_machine, output)


def merge(asked, parts, output):
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder) / f"{number}.json" for number in range(len(parts))]
        for file, part in zip(files, parts):
            file.write_text(part)
        also = ["--reproducible"] if asked.reproducible else []
        command = [asked.sunder, "merge", "--format", "json", *also, "-o", str(output)]
        subprocess.run([*command, *map(str, files)], check=True)


if __name__ == "__main__":
    main()
