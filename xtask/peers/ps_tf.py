"""Softmax on MNIST under TensorFlow's ParameterServerStrategy: two workers, a server and a coordinator, local processes.

ps_tf.py MNIST [--inner STEPS] speaks the protocol of contest.py (global steps per second); `--inner` is how many steps the
coordinator sends to a worker at once. With `--first` it ends after the first step instead. Optimisers of Keras 3 do not work under
this strategy, so the update is written out; batches are made beforehand, so that the input costs next to nothing.
TensorFlow's server listens on all interfaces: run it in a network namespace of its own.
"""
import argparse
import json
import os
import socket
import subprocess
import sys
import time

import contest

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
BATCH, RATE, WORKERS, SECONDS = 100, 0.01, 2, 2.0


def free_addresses(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return addresses


def serve(cluster, role, index):
    import tensorflow as tf

    tf.distribute.Server(tf.train.ClusterSpec(cluster), job_name=role, task_index=index, protocol="grpc").join()


class Job:
    def __init__(self, cluster, mnist, inner):
        import numpy as np
        import tensorflow as tf

        from mnist_softmax import load

        images, labels = load(mnist)[:2]
        order = np.random.default_rng(7).permutation(len(images))
        images = images[order].reshape(-1, BATCH, 784)
        labels = labels[order].astype(np.int32).reshape(-1, BATCH)
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(cluster), rpc_layer="grpc")
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            weight, bias = tf.Variable(tf.zeros((784, 10))), tf.Variable(tf.zeros(10))

        def batches():
            return tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(100).repeat().prefetch(4)

        self.batches = iter(self.coordinator.create_per_worker_dataset(tf.function(batches)))

        def one(batches):
            x, y = next(batches)
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, x @ weight + bias))
            for variable, grad in zip((weight, bias), tape.gradient(loss, (weight, bias))):
                variable.assign_sub(RATE * grad)
            return loss

        @tf.function
        def several(batches):
            loss = tf.constant(0.0)
            for _ in tf.range(inner):
                loss = one(batches)
            return loss

        self.step, self.inner = (tf.function(one) if inner == 1 else several), inner
        self.name = f"TensorFlow {tf.__version__} ParameterServerStrategy, {inner} step(s) per call"

    def run(self, calls):
        """Seconds for so many calls, spread over the workers."""
        began = time.perf_counter()
        for _ in range(calls):
            last = self.coordinator.schedule(self.step, args=(self.batches,))
        self.coordinator.join()
        assert float(last.fetch()) < 10
        return time.perf_counter() - began

    def measure(self):
        calls = 8
        while (seconds := self.run(calls)) < SECONDS / 8:
            calls *= 2
        calls = max(1, int(calls * SECONDS / seconds))
        return calls * self.inner / self.run(calls)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mnist")
    parser.add_argument("--inner", type=int, default=1)
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--serve", nargs=3)
    args = parser.parse_args()
    if args.serve:
        cluster, role, index = args.serve
        return serve(json.loads(cluster), role, int(index))
    addresses = free_addresses(WORKERS + 1)
    cluster = {"worker": addresses[:WORKERS], "ps": addresses[WORKERS:]}
    tasks = [("ps", 0)] + [("worker", index) for index in range(WORKERS)]
    # They end with this process, however that ends.
    prefix = ["setpriv", "--pdeathsig", "KILL", sys.executable, os.path.abspath(__file__), args.mnist, "--serve"]
    processes = [subprocess.Popen([*prefix, json.dumps(cluster), role, str(index)], stdin=subprocess.DEVNULL) for role, index in tasks]
    try:
        job = Job(cluster, args.mnist, args.inner)
        if args.first:
            job.run(1)
        else:
            contest.serve(job.name, job.measure)
    finally:
        for process in processes:
            process.kill()
    os._exit(0)  # the coordinator's threads would wait for the servers


if __name__ == "__main__":
    main()
