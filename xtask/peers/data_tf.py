"""TensorFlow's tf.data on the work of `prepare` and of the reading speed test, at its best settings.

The clock stops at the last element: with autotune on, tearing an iterator down can stall for seconds, which a long job
never notices. Old iterators are dropped before the next clock starts.
"""
import argparse
import glob
import os
import time

import contest

import tensorflow as tf

AUTO = tf.data.AUTOTUNE
NAME = f"TensorFlow {tf.__version__} tf.data"
KEEP = []


def drain(dataset, count):
    """Rate of reading a data set to its end; `count(element)` is what an element is worth."""
    KEEP.clear()
    start = time.perf_counter()
    KEEP.append(iter(dataset))
    done = 0.0
    for element in KEEP[0]:
        done += count(element)
    return done / (time.perf_counter() - start)


def example(jpeg, label):
    feature = {
        "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[jpeg])),
        "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def reduced(data, size):
    """Decodes at an eighth, a quarter or half the size where that is still as large as the result."""
    short = tf.reduce_min(tf.io.extract_jpeg_shape(data)[:2])
    # The ratio is an attribute, not an input: one branch for each.
    decode = [lambda ratio=ratio: tf.io.decode_jpeg(data, channels=3, ratio=ratio) for ratio in (1, 2, 4, 8)]
    fits = tf.cast([short >= ratio * size for ratio in (2, 4, 8)], tf.int32)
    return tf.switch_case(tf.reduce_sum(fits), decode)


def prepare(args):
    photos = contest.list_photos(args.images)
    os.makedirs(args.out, exist_ok=True)
    names = tf.data.Dataset.from_tensor_slices(([p for p, _ in photos], [y for _, y in photos]))
    calls = args.calls or AUTO

    def one(path, label):
        data = tf.io.read_file(path)
        photo = reduced(data, args.size) if args.ratio else tf.io.decode_jpeg(data, channels=3)
        shape = tf.shape(photo)
        short = tf.minimum(shape[0], shape[1])
        photo = tf.image.crop_to_bounding_box(photo, (shape[0] - short) // 2, (shape[1] - short) // 2, short, short)
        photo = tf.image.resize(photo, (args.size, args.size), antialias=args.antialias)
        photo = tf.cast(tf.clip_by_value(tf.round(photo), 0, 255), tf.uint8)
        return tf.io.encode_jpeg(photo, quality=args.quality, optimize_size=False), label

    def measure():
        KEEP.clear()
        start = time.perf_counter()
        writers = [tf.io.TFRecordWriter(os.path.join(args.out, f"tf-{i}.tfrecord")) for i in range(2)]
        KEEP.append(iter(names.map(one, calls, deterministic=False).batch(64).prefetch(AUTO)))
        done = 0
        for jpegs, labels in KEEP[0]:
            for jpeg, label in zip(jpegs.numpy(), labels.numpy()):
                writers[done & 1].write(example(jpeg, int(label)))
                done += 1
        for writer in writers:
            writer.close()
        return done / (time.perf_counter() - start)

    return f"{NAME}, antialias {'on' if args.antialias else 'off'}{', reduced decoding' if args.ratio else ''}", measure


def records(args):
    files = sorted(glob.glob(os.path.join(args.records, "*.tfrecord")))
    spec = {"image/encoded": tf.io.FixedLenFeature([], tf.string), "image/class/label": tf.io.FixedLenFeature([], tf.int64)}

    def parse(record):
        parsed = tf.io.parse_single_example(record, spec)
        return tf.io.decode_jpeg(parsed["image/encoded"], channels=3), parsed["image/class/label"]

    dataset = tf.data.TFRecordDataset(files, buffer_size=1 << 20).take(args.take)
    dataset = dataset.map(parse, args.calls or AUTO, deterministic=False).batch(args.batch, drop_remainder=True).prefetch(AUTO)
    return f"{NAME}, {args.calls or 'AUTOTUNE'} calls", lambda: drain(dataset, lambda x: x[0].shape[0])


def files(args):
    photos = contest.list_photos(args.images)
    dataset = tf.data.Dataset.from_tensor_slices(([p for p, _ in photos], [y for _, y in photos])).repeat(-(-args.take // len(photos)))

    def one(path, label):
        return tf.io.decode_jpeg(tf.io.read_file(path), channels=3), label

    dataset = dataset.take(args.take).map(one, args.calls or AUTO, deterministic=False).batch(args.batch, drop_remainder=True).prefetch(AUTO)
    return f"{NAME}, {args.calls or 'AUTOTUNE'} calls", lambda: drain(dataset, lambda x: x[0].shape[0])


def raw(args):
    names = sorted(glob.glob(os.path.join(args.records, "*.tfrecord")))
    total = sum(map(os.path.getsize, names)) / 1e9
    base = tf.data.Dataset.from_tensor_slices(names)
    if args.obvious:
        dataset = base.interleave(
            lambda f: tf.data.TFRecordDataset(f, buffer_size=1 << 20), cycle_length=AUTO, num_parallel_calls=AUTO, deterministic=False
        ).batch(256)
    else:
        dataset = base.interleave(
            lambda f: tf.data.TFRecordDataset(f, buffer_size=1 << 20).batch(256), cycle_length=2, num_parallel_calls=2, deterministic=False
        )
    dataset = dataset.prefetch(AUTO)

    def measure():
        seconds_per_unit = 1 / drain(dataset, lambda _: 1)
        count = sum(1 for _ in dataset) if not hasattr(measure, "count") else measure.count
        measure.count = count
        return total / (seconds_per_unit * count)

    return f"{NAME}, " + ("autotuned interleave" if args.obvious else "per-file batches interleaved"), measure


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=["prepare", "records", "files", "raw"])
    parser.add_argument("--images")
    parser.add_argument("--records")
    parser.add_argument("--out")
    parser.add_argument("--size", type=int, default=192)
    parser.add_argument("--quality", type=int, default=90)
    parser.add_argument("--antialias", action="store_true")
    parser.add_argument("--ratio", action="store_true", help="reduced decoding where the photo allows it")
    parser.add_argument("--obvious", action="store_true")
    parser.add_argument("--calls", type=int, default=0, help="parallel calls; 0 lets tf.data choose")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--take", type=int, default=12000)
    args = parser.parse_args()
    name, measure = {"prepare": prepare, "records": records, "files": files, "raw": raw}[args.work](args)
    contest.serve(name, measure)


if __name__ == "__main__":
    main()
