"""Softmax regression on MNIST end to end: epochs per second of 10 epochs at batch 100, plain SGD 0.01.

From the gzipped files to scored test images; only starting the interpreter and importing the library are outside the
clock. The test accuracy is checked, so that a fast result that learned nothing is rejected.
"""
import argparse
import gzip
import os
import struct
import time

import contest

import numpy as np

EPOCHS, BATCH, RATE = 10, 100, 0.01


def idx(folder, stem):
    with gzip.open(os.path.join(folder, stem + ".gz")) as file:
        raw = file.read()
    dims = struct.unpack(">" + "I" * raw[3], raw[4 : 4 + 4 * raw[3]])
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(dims)


def load(folder):
    out = []
    for part in ("train", "t10k"):
        images = idx(folder, part + "-images-idx3-ubyte")
        out += [images.reshape(len(images), -1).astype(np.float32) / 255, idx(folder, part + "-labels-idx1-ubyte").astype(np.int64)]
    return out


def keras():
    import tensorflow as tf

    def train(x, y, test):
        model = tf.keras.Sequential([tf.keras.Input((784,)), tf.keras.layers.Dense(10)])
        model.compile(tf.keras.optimizers.SGD(RATE), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, verbose=0)
        return model.predict(test, batch_size=1000, verbose=0).argmax(1)

    return f"TensorFlow {tf.__version__}, Keras fit", train


def tf_function():
    import tensorflow as tf

    def train(x, y, test):
        inputs, labels = tf.constant(x), tf.constant(y)
        w, b = tf.Variable(tf.zeros((784, 10))), tf.Variable(tf.zeros(10))

        @tf.function
        def epoch(order):
            for rows in tf.reshape(order, (-1, BATCH)):
                with tf.GradientTape() as tape:
                    logits = tf.gather(inputs, rows) @ w + b
                    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.gather(labels, rows), logits))
                grad_w, grad_b = tape.gradient(loss, (w, b))
                w.assign_sub(RATE * grad_w)
                b.assign_sub(RATE * grad_b)

        for _ in range(EPOCHS):
            epoch(tf.random.shuffle(tf.range(len(x))))
        return (test @ w.numpy() + b.numpy()).argmax(1)

    return f"TensorFlow {tf.__version__}, tf.function epoch", train


def torch():
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(2)

    def train(x, y, test):
        inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
        model = torch.nn.Linear(784, 10)
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(x)).split(BATCH):
                optimizer.zero_grad(set_to_none=True)
                F.cross_entropy(model(inputs[rows]), labels[rows]).backward()
                optimizer.step()
        return model(torch.from_numpy(test)).argmax(1).numpy()

    return f"PyTorch {torch.__version__}, loop", train


def sklearn():
    import warnings

    import sklearn
    from sklearn.neural_network import MLPClassifier

    warnings.simplefilter("ignore")

    def train(x, y, test):  # without hidden layers this is softmax regression with real mini-batches
        model = MLPClassifier(
            (), solver="sgd", batch_size=BATCH, learning_rate_init=RATE, momentum=0.0, alpha=0.0, max_iter=EPOCHS,
            n_iter_no_change=EPOCHS + 1, tol=0.0,
        ).fit(x, y)
        return model.predict(test)

    return f"scikit-learn {sklearn.__version__}, MLPClassifier(())", train


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=["keras", "tf_function", "torch", "sklearn"])
    parser.add_argument("--mnist", required=True)
    args = parser.parse_args()
    name, train = globals()[args.engine]()

    def measure():
        start = time.perf_counter()
        x, y, test, answers = load(args.mnist)
        accuracy = float((train(x, y, test) == answers).mean())
        seconds = time.perf_counter() - start
        assert accuracy > 0.89, f"{name} reached only {accuracy}"
        return EPOCHS / seconds

    contest.serve(name, measure)


if __name__ == "__main__":
    main()
