"""Runs contrib/spark or contrib/dask on a cluster of two workers on the loopback address, and kills an
executor and a whole worker while they replay buckets: cluster.py spark|dask SCRIPT SUNDER TABLES OUTPUT.

Tasks run `sunder` by a script that notes who runs it and then waits until it may go on, so what is
killed is in the middle of a task, however fast the machine is. Prints what was done as JSON.
"""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

PATIENCE = 240


def port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def until(what, condition):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise SystemExit(f"{what} did not come within {PATIENCE} s")


def answers(at):
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", at)) == 0


def parents(process):
    """The process's ancestors, itself first."""
    chain = []
    while process > 1:
        chain.append(process)
        try:
            stat = pathlib.Path(f"/proc/{process}/stat").read_text()
        except OSError:
            break
        process = int(stat.rpartition(")")[2].split()[1])
    return chain


def children(process):
    """The process and all that it has started."""
    found = [process]
    for number in filter(str.isdigit, os.listdir("/proc")):
        if int(number) != process and process in parents(int(number)):
            found.append(int(number))
    return found


def kill(processes):
    for process in processes:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Cluster:
    def __init__(self, folder):
        self.folder = folder
        self.started = []
        self.at = port()

    def start(self, *command, **environment):
        log = open(self.folder / f"{len(self.started)}.log", "w")
        environment = {**os.environ, **environment}
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        self.started.append(process)
        return process

    def stop(self):
        for process in self.started:
            kill(children(process.pid))
            process.wait()


class Spark(Cluster):
    """A standalone master and two workers with one core each."""

    def __init__(self, folder):
        super().__init__(folder)
        import pyspark

        home = pathlib.Path(pyspark.__file__).parent
        self.home = home
        spark = str(home / "bin/spark-class")
        here = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable,
                "SPARK_WORKER_DIR": str(folder / "work")}
        self.here = here
        self.address = f"spark://127.0.0.1:{self.at}"
        self.start(spark, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1",
                   "--port", str(self.at), "--webui-port", str(port()), **here)
        until("the master", lambda: answers(self.at))
        self.workers = [
            self.start(spark, "org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "1g",
                       "--host", "127.0.0.1", "--webui-port", str(port()), self.address, **here)
            for _ in range(2)
        ]

    def submit(self, script, arguments):
        return self.start(str(self.home / "bin/spark-submit"), "--master", self.address,
                          "--conf", "spark.executor.memory=512m", "--conf", "spark.ui.enabled=false",
                          "--conf", "spark.driver.host=127.0.0.1", script, *arguments, **self.here)

    def executor(self, task):
        """The Java process that runs the task."""
        is_java = lambda process: "CoarseGrainedExecutorBackend" in command_of(process)
        return [process for process in parents(task) if is_java(process)][:1]


class Dask(Cluster):
    """A scheduler and two workers with one thread each, under nannies that start them again."""

    def __init__(self, folder):
        super().__init__(folder)
        dask = str(pathlib.Path(sys.executable).parent / "dask")
        self.address = f"tcp://127.0.0.1:{self.at}"
        self.start(dask, "scheduler", "--host", "127.0.0.1", "--port", str(self.at), "--no-dashboard")
        until("the scheduler", lambda: answers(self.at))
        self.workers = [
            self.start(dask, "worker", "--host", "127.0.0.1", "--nthreads", "1", "--no-dashboard",
                       "--local-directory", str(folder / f"worker{number}"), self.address)
            for number in range(2)
        ]

    def submit(self, script, arguments):
        return self.start(sys.executable, script, "--scheduler", self.address, *arguments)

    def executor(self, task):
        """The process that the nanny started for tasks."""
        nannies = {worker.pid for worker in self.workers}
        chain = parents(task)
        below = [process for process in chain if nannies & set(parents(process)[1:])]
        return below[-1:]


def command_of(process):
    try:
        return pathlib.Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def main():
    kind, script, sunder, tables, output = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "tasks").mkdir()
        (folder / "wait").touch()
        held = folder / "sunder"
        held.write_text(
            f"#!/bin/sh\n: > {folder}/tasks/$$\n"
            f"while [ -e {folder}/wait ]; do sleep 0.1; done\n"
            f'exec {sunder} "$@"\n'
        )
        held.chmod(0o755)
        cluster = {"spark": Spark, "dask": Dask}[kind](folder)

        def running():
            """The tasks that wait to go on, with the worker of each."""
            found = {}
            for task in map(int, os.listdir(folder / "tasks")):
                ancestors = set(parents(task))
                if len(ancestors) > 1:
                    owners = [worker.pid for worker in cluster.workers if worker.pid in ancestors]
                    found.update((owner, task) for owner in owners)
            return found

        try:
            arguments = [tables, "-o", output, "--sunder", str(held), "--reproducible"]
            job = cluster.submit(script, arguments)

            def both():
                if job.poll() is not None:
                    raise SystemExit(f"the job ended: {job.returncode}")
                now = running()
                return now if len(now) == 2 else None

            first = until("a task on each worker", both)
            victim = cluster.workers[0].pid
            executor = cluster.executor(first[victim])
            assert executor, "the task has an executor"
            kill([process for one in executor for process in children(one)])
            # The worker starts another executor, which gets a task again.
            again = until(
                "a task on the other executor",
                lambda: (now := both()) and now[victim] != first[victim] and now,
            )
            kill(children(cluster.workers[1].pid))
            (folder / "wait").unlink()
            job.wait(PATIENCE)
            killed = {"executor": len(executor), "worker": 1, "again": again[victim] != first[victim]}
            print(json.dumps({"status": job.returncode, "killed": killed}))
        except BaseException:
            for log in sorted(folder.glob("*.log")):
                print(f"== {log.name}", *log.read_text().splitlines()[-25:], sep="\n", file=sys.stderr)
            raise
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
