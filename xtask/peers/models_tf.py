"""TensorFlow: training steps (forward, cross entropy, backward, SGD 0.01) on random data, one tf.function, NHWC, oneDNN on, with XLA or without."""
import argparse
import time

import contest

import tensorflow as tf

K, L = tf.keras, tf.keras.layers


def conv(filters, kernel, **options):
    return L.Conv2D(filters, kernel, activation="relu", **options)


def dense(units):
    return L.Dense(units, activation="relu")


def lenet():
    return K.Sequential([
        K.Input((28, 28, 1)), conv(6, 5, padding="same"), L.AveragePooling2D(2), conv(16, 5), L.AveragePooling2D(2), L.Flatten(),
        dense(120), dense(84), L.Dense(10),
    ])


def alexnet():
    return K.Sequential([
        K.Input((224, 224, 3)), L.ZeroPadding2D(2), conv(64, 11, strides=4), L.MaxPool2D(3, 2), conv(192, 5, padding="same"), L.MaxPool2D(3, 2),
        conv(384, 3, padding="same"), conv(256, 3, padding="same"), conv(256, 3, padding="same"), L.MaxPool2D(3, 2), L.Flatten(),
        dense(4096), dense(4096), L.Dense(1000),
    ])


WORKS = {
    "softmax": (lambda: K.Sequential([K.Input((784,)), L.Dense(10)]), (784,), 10),
    "lenet": (lenet, (28, 28, 1), 10),
    "alexnet": (alexnet, (224, 224, 3), 1000),
    "mobilenet-v2": (lambda: K.applications.MobileNetV2((224, 224, 3), weights=None, classes=5, classifier_activation=None), (224, 224, 3), 5),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=WORKS)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True, help="steps of one measurement")
    parser.add_argument("--warm-up", type=int, default=1, help="measurements before the first that counts")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--xla", action="store_true", help="jit_compile=True")
    parser.add_argument("--side", type=int, help="pixels of MobileNet-v2's images")
    parser.add_argument("--width", type=float, default=1.0, help="width of MobileNet-v2")
    args = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    tf.config.threading.set_inter_op_parallelism_threads(args.threads)
    make, shape, classes = WORKS[args.model]
    if args.model == "mobilenet-v2":
        shape = (args.side or 224, args.side or 224, 3)
        make = lambda: K.applications.MobileNetV2(shape, alpha=args.width, weights=None, classes=5, classifier_activation=None)
    model, x = make(), tf.random.normal((args.batch, *shape))
    y = tf.random.uniform((args.batch,), 0, classes, dtype=tf.int32)
    variables = model.trainable_variables

    @tf.function(jit_compile=args.xla)
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=True)))
        for variable, gradient in zip(variables, tape.gradient(loss, variables)):
            variable.assign_sub(0.01 * gradient)
        return loss

    def measure():
        start = time.perf_counter()
        for _ in range(args.steps):
            loss = step(x, y)
        loss.numpy()
        return args.steps * args.batch / (time.perf_counter() - start)

    contest.serve(f"TensorFlow {tf.__version__}, tf.function{', XLA' if args.xla else ''}{contest.memory()}", measure, args.warm_up)


if __name__ == "__main__":
    main()
