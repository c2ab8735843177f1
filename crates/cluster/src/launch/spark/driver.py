"""Hands slices of Paceline's work to Spark; Paceline's own binary does the work.

Written out and given to spark-submit by `paceline --engine spark`; standard library and pyspark only, Spark 3.5 and 4.

The one argument names a file of JSON lines: what to run, then one slice of work per line. Our parent process reads
events from our standard output, one line each, behind MARK, and ignores whatever else Spark prints there. A task that
fails raises its own words behind MARK, so that they can be found again in the middle of a Java stack trace.
"""
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

MARK = "@paceline "


def tell(event, **fields):
    sys.stdout.write(MARK + json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def executor_name():
    """The executor above this process, from the command line of its Java process; empty where it cannot be seen."""
    pid = os.getpid()
    for _ in range(4):
        try:
            with open(f"/proc/{pid}/stat") as stat:
                pid = int(stat.read().rpartition(")")[2].split()[1])
            with open(f"/proc/{pid}/cmdline") as line:
                words = line.read().split("\0")
        except (OSError, ValueError, IndexError):
            return ""
        if "--executor-id" in words:
            return words[words.index("--executor-id") + 1]
    return ""


def failed(host, error, hint=None, exit=1):
    fields = {"host": host, "error": error, "hint": hint, "exit": exit}
    return RuntimeError(MARK + json.dumps(fields) + "\n")


def run(command, text, host, environment=None, listener=None):
    """Runs our binary on `text` and returns its document; it dies with us, for Spark kills attempts it no longer wants.
    It inherits a listening socket, so that no other process can take the port in between."""
    libc, parent = ctypes.CDLL(None), os.getpid()

    def die_with_parent():
        libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # it may have gone before the kernel was asked
            os._exit(1)

    environment = {**os.environ, **(environment or {})}
    if listener is not None:
        environment["PACELINE_LISTEN_FD"] = str(listener.fileno())
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=die_with_parent,
            env=environment,
            pass_fds=[] if listener is None else [listener.fileno()],
        )
    except OSError as error:
        hint = "the executors need a build that runs there: give one, such as a static build, by --spark-binary"
        raise failed(host, f"cannot start the shipped binary: {error}", hint) from None
    if listener is not None:
        listener.close()  # it is the binary's now, and ends with it
    out, err = child.communicate(text.encode())
    try:
        document = json.loads(out)
    except ValueError:
        document = {}
    if child.returncode != 0 or not isinstance(document, dict):
        tail = err.decode(errors="replace").strip().splitlines()[-5:]
        said = document.get("error") if isinstance(document, dict) else None
        causes = ": ".join(document.get("causes") or []) if said else ""
        error = ": ".join(part for part in (said, causes) if part)
        error = error or f"the binary ended with code {child.returncode}: " + " / ".join(tail)
        raise failed(host, error, document.get("hint") if said else None, document.get("exit", 1) if said else 75)
    return document


def shipped(name):
    """Where `spark-submit --files` put a file on this machine, executable."""
    from pyspark import SparkFiles

    path = SparkFiles.get(name)
    if not os.path.exists(path):
        path = os.path.abspath(name)  # YARN puts files into the working folder
    if os.path.exists(path) and not os.access(path, os.X_OK):
        os.chmod(path, 0o755)
    return path


def slice_task(spec):
    """What a task does with its group of slices."""

    def task(partition, groups):
        from pyspark import TaskContext

        context = TaskContext.get()
        host = socket.gethostname()
        for group in groups:
            begun = time.time()
            command = [shipped(spec["binary"]), *spec["arguments"]]
            text = "\n".join([spec["heading"], *group]) + "\n"
            result = run(command, text, host)
            yield {
                "partition": partition,
                "attempt": context.attemptNumber(),
                "host": host,
                "executor": executor_name(),
                "slices": len(group),
                "begun": begun,
                "seconds": time.time() - begun,
                "result": result,
            }

    return task


def cluster_task(spec, names):
    """What a task of a barrier stage does: all of them learn where all of them are, then each plays its part."""

    def task(partition, _):
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        # The name under which Spark itself reaches this machine; others reach it by the same.
        host = context.getTaskInfos()[partition].address.rpartition(":")[0] or socket.gethostname()
        with socket.create_server((host, 0)) as listener:
            everyone = context.allGather(f"{host}:{listener.getsockname()[1]}")
            cluster = {}
            for name, address in zip(names, everyone):
                cluster.setdefault(name.partition("/")[0], []).append(address)
            role, _, index = names[partition].partition("/")
            config = {"cluster": cluster, "task": {"type": role, "index": int(index)}}
            begun = time.time()
            folder = tempfile.mkdtemp(prefix="paceline-task-")  # for this user alone
            try:
                key = os.path.join(folder, "cluster.key")
                with open(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                    file.write(spec["key"])
                environment = {"TF_CONFIG": json.dumps(config), "PACELINE_KEY_FILE": key}
                command = [shipped(spec["binary"]), *spec["arguments"]]
                result = run(command, "", f"{host} ({names[partition]})", environment, listener)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        yield {
            "partition": partition,
            "attempt": context.attemptNumber(),
            "host": socket.gethostname(),
            "executor": executor_name(),
            "slices": 1,
            "begun": begun,
            "seconds": time.time() - begun,
            "result": result,
        }

    return task


def local(context):
    return context.master.startswith("local") and not context.master.startswith("local-cluster")


def executors(context):
    if local(context):
        return 1
    return len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1  # the driver is listed too


def wait_for_executors(context, patience, settle, slots=1):
    """Spark itself would wait for ever where the cluster has no room; returns how many there are, 0 for none in time.
    Goes on waiting while fewer than `slots` tasks could run at once."""
    begun = told = time.monotonic()
    seen, since = 0, begun
    while True:
        now, count = time.monotonic(), executors(context)
        if count != seen:
            seen, since = count, now
        if seen and room(context) >= slots and (local(context) or now - since >= settle):
            return seen
        if now - begun > patience:
            return seen
        if not seen and now - told >= 5:
            told = now
            tell("waiting", seconds=now - begun)
        time.sleep(0.1)


def room(context):
    """Tasks that can run at the same time."""
    java = context._jsc.sc()
    try:
        return java.maxNumConcurrentTasks(java.resourceProfileManager().defaultResourceProfile())
    except Exception:  # not a public interface; the public figure is never below two
        return context.defaultParallelism // task_cores(context)


def task_cores(context):
    return max(1, int(context.getConf().get("spark.task.cpus", "1")))


def cores(context):
    return room(context) * task_cores(context)


def cut(slices, parts):
    """Contiguous groups, even to within one slice."""
    edges = [len(slices) * part // parts for part in range(parts + 1)]
    return [slices[start:end] for start, end in zip(edges, edges[1:])]


def words(error):
    """What the cluster says about a failure, without its stack."""
    java = getattr(error, "java_exception", None)
    text = (java.getMessage() or java.toString()) if java is not None else str(error)
    if MARK in text:
        ours = text[text.rindex(MARK) + len(MARK):]
        try:
            return json.JSONDecoder().raw_decode(ours)[0]
        except ValueError:
            pass
    text = text.partition("most recent failure: ")[2] or text
    return {"error": text.strip().splitlines()[0] if text.strip() else type(error).__name__}


def main():
    with open(sys.argv[1]) as job:
        spec = json.loads(job.readline())
        slices = [line.rstrip("\n") for line in job]
    from pyspark import SparkContext

    begun = time.monotonic()
    context = SparkContext.getOrCreate()
    tell("session", version=context.version, application=context.applicationId, seconds=time.monotonic() - begun)
    if spec["kind"] == "cluster":
        return run_cluster(context, spec, slices)
    # With a number of tasks given, what is still coming up may join while the first tasks run.
    count = wait_for_executors(context, spec["patience"], 0.0 if spec["partitions"] else 1.5)
    if not count:
        tell("no_executors", seconds=spec["patience"], master=context.master)
        return 1
    partitions = max(1, min(spec["partitions"] or spec["per_core"] * room(context), len(slices)))
    tell("stage", executors=count, cores=cores(context), partitions=partitions)
    begun = time.monotonic()
    groups = context.parallelize(cut(slices, partitions), partitions)
    reports = groups.mapPartitionsWithIndex(slice_task(spec)).collect()
    return finish(context, reports, time.monotonic() - begun)


def run_cluster(context, spec, names):
    """All tasks or none: a barrier stage, in which each task runs one member of a Paceline cluster."""
    if context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
        tell("failed", error="tasks that wait for each other need executors that stay: dynamic allocation is on")
        return 1
    count = wait_for_executors(context, spec["patience"], 0.0, len(names))
    if not count:
        tell("no_executors", seconds=spec["patience"], master=context.master)
        return 1
    if room(context) < len(names):
        tell("too_few_slots", slots=room(context), wanted=len(names), executors=count, cores=cores(context))
        return 1
    tell("stage", executors=count, cores=cores(context), partitions=len(names))
    begun = time.monotonic()
    members = context.parallelize(range(len(names)), len(names)).barrier()
    reports = members.mapPartitionsWithIndex(cluster_task(spec, names)).collect()
    return finish(context, reports, time.monotonic() - begun)


def finish(context, reports, seconds):
    # Executors that came up after the first task had begun count too: they could have worked.
    there = {"executors": executors(context), "cores": cores(context), "slots": room(context)}
    for report in reports:
        tell("task", **report)
    tell("done", seconds=seconds, **there)
    context.stop()
    return 0


if __name__ == "__main__":
    try:
        code = main()
    except Exception as error:
        tell("failed", **words(error))
        code = 1
    sys.exit(code)
