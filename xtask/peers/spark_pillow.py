"""The usual PySpark job: photos -> Pillow -> TFRecord with mapPartitions, one shard a partition.

Settings that serve it best: full session warm before the clock, paths shipped and files read by the tasks, Pillow straight
from the crop box with libjpeg-turbo's scaled decoding, CRC32C from Google's C extension, no fsync.
"""
import argparse
import os
import shutil
import time

import PIL
import pyspark
from pyspark.sql import SparkSession

import contest

HERE = os.path.dirname(os.path.abspath(__file__))


def writer(out, size, quality):
    def write(partition, photos):
        from prepare_pillow import prepare

        done = 0
        with open(os.path.join(out, f"pillow-{partition:05}.tfrecord"), "wb") as shard:
            for path, label in photos:
                shard.write(prepare(path, label, size, quality, True))
                done += 1
        yield done

    return write


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--master", required=True)
    parser.add_argument("--tasks", type=int, required=True)
    parser.add_argument("--size", type=int, default=192)
    parser.add_argument("--quality", type=int, default=90)
    args = parser.parse_args()
    os.environ.setdefault("SPARK_HOME", os.path.dirname(pyspark.__file__))
    builder = SparkSession.builder.master(args.master).appName("pillow").config("spark.ui.enabled", "false")
    context = builder.config("spark.executor.memory", "512m").config("spark.executor.cores", "1").getOrCreate().sparkContext
    context.setLogLevel("ERROR")
    for name in ("contest.py", "prepare_pillow.py"):
        context.addPyFile(os.path.join(HERE, name))
    photos = contest.list_photos(os.path.abspath(args.images))
    out = os.path.abspath(args.out)

    def measure():
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(out)
        start = time.perf_counter()
        done = sum(context.parallelize(photos, args.tasks).mapPartitionsWithIndex(writer(out, args.size, args.quality)).collect())
        assert done == len(photos)
        return done / (time.perf_counter() - start)

    contest.serve(f"PySpark {pyspark.__version__} + Pillow {PIL.__version__}, scaled decoding", measure, warm_up=2)


if __name__ == "__main__":
    main()
