"""TensorFlow's ParameterServerStrategy on logistic regression over 2^25 weights: examples per second of 2 workers and 1 server.

  sparse_ps_tf.py FILE.tsv [STEPS_PER_CLOSURE]

The first 102,400 rows of the click log, 39 ids a row (a missing field is a category of its own), hashed and batched by 512
beforehand and kept in memory, so that its input costs next to nothing; plain SGD written by hand, since Keras optimisers do not
support this strategy. 100 steps per closure served it best (one step: about half the rate). Its gRPC server listens on every
interface, so it is to be run in a network namespace of its own.
"""
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

BATCH, ROWS, WORKERS, BITS, RATE = 512, 200 * 512, 2, 25, 0.1

if len(sys.argv) > 3 and sys.argv[2] == "--task":
    import tensorflow as tf

    role, index, cluster = sys.argv[3], int(sys.argv[4]), json.loads(sys.argv[5])
    tf.distribute.Server(tf.train.ClusterSpec(cluster), job_name=role, task_index=index, protocol="grpc").join()

import numpy as np
import tensorflow as tf

from contest import serve


def rows(path):
    ids, labels = np.empty((ROWS, 39), np.int64), np.empty(ROWS, np.float32)
    with open(path) as lines:
        for row, line in zip(range(ROWS), lines):
            fields = line.rstrip("\n").split("\t")
            labels[row] = int(fields[0])
            for k, value in enumerate(fields[1:]):
                if k < 13 and value:
                    value = str(int(value).bit_length())
                ids[row, k] = zlib.crc32(f"{k}={value}".encode()) % (1 << BITS)
    return ids, labels


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: when this process is killed, so are its servers


def main():
    path = sys.argv[1]
    inner = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    ports = free_ports(WORKERS + 1)
    cluster = {"worker": [f"127.0.0.1:{p}" for p in ports[:WORKERS]], "ps": [f"127.0.0.1:{ports[-1]}"]}
    tasks = [("ps", 0)] + [("worker", index) for index in range(WORKERS)]
    children = [
        subprocess.Popen([sys.executable, os.path.abspath(__file__), path, "--task", role, str(index), json.dumps(cluster)],
                         stdin=subprocess.DEVNULL, stdout=sys.stderr, preexec_fn=die_with_parent)
        for role, index in tasks
    ]
    try:
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(cluster), rpc_layer="grpc")
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            weights, bias = tf.Variable(tf.zeros((1 << BITS, 1))), tf.Variable(0.0)
        data = tuple(part.reshape(-1, BATCH, *part.shape[1:]) for part in rows(path))

        def dataset():
            return tf.data.Dataset.from_tensor_slices(data).shuffle(100).repeat().prefetch(4)

        iterator = iter(coordinator.create_per_worker_dataset(tf.function(dataset)))

        def one(iterator):
            x, y = next(iterator)
            with tf.GradientTape() as tape:
                z = tf.reduce_sum(tf.nn.embedding_lookup(weights, x), [1, 2]) + bias
                loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(y, z))
            sparse, dense = tape.gradient(loss, [weights, bias])
            weights.scatter_sub(tf.IndexedSlices(RATE * sparse.values, sparse.indices))
            bias.assign_sub(RATE * dense)
            return loss

        @tf.function
        def step(iterator):
            loss = tf.constant(0.0)
            for _ in tf.range(inner):
                loss = one(iterator)
            return loss

        def go(closures):
            start = time.perf_counter()
            for _ in range(closures):
                coordinator.schedule(step, args=(iterator,))
            coordinator.join()
            return closures * inner * BATCH / (time.perf_counter() - start)

        go(WORKERS)
        rate = go(2 * WORKERS)
        closures = max(WORKERS, int(3 * rate / (inner * BATCH)))  # about three seconds
        name = f"TensorFlow {tf.__version__} ParameterServerStrategy, sgd, {inner} steps per closure"
        serve(name, lambda: go(closures))
    finally:
        for child in children:
            child.kill()
    os._exit(0)


main()
