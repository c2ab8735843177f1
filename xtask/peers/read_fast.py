"""NVIDIA DALI on CPU, and OpenCV on threads, on the work of the reading speed test: read, decode, batch.

DALI reads TFRecord files through an index (written here, outside the clock) or image files, and decodes on its own threads.
OpenCV decodes files on a pool of threads: it lets Python's lock go while it works.
"""
import argparse
import concurrent.futures
import glob
import os
import struct
import time

import contest


def index(records):
    """What DALI wants beside each file of records: offset and length of every record."""
    made = []
    for path in records:
        made.append(path + ".idx")
        with open(path, "rb") as file, open(made[-1], "w") as out:
            at, size = 0, os.path.getsize(path)
            while at < size:
                file.seek(at)
                length = struct.unpack("<Q", file.read(8))[0] + 16
                out.write(f"{at} {length}\n")
                at += length
    return made


def dali(args):
    import nvidia.dali as dali_
    import nvidia.dali.fn as fn
    import nvidia.dali.tfrecord as tfrec
    import nvidia.dali.types as types

    @dali_.pipeline_def(batch_size=args.batch, num_threads=args.threads, device_id=None, prefetch_queue_depth=3)
    def pipeline():
        if args.records:
            files = sorted(glob.glob(os.path.join(args.records, "*.tfrecord")))
            features = {
                "image/encoded": tfrec.FixedLenFeature((), tfrec.string, ""),
                "image/class/label": tfrec.FixedLenFeature([1], tfrec.int64, -1),
            }
            read = fn.readers.tfrecord(path=files, index_path=index(files), features=features, dont_use_mmap=False)
            jpegs, labels = read["image/encoded"], read["image/class/label"]
        else:
            photos = contest.list_photos(args.images)
            jpegs, labels = fn.readers.file(files=[p for p, _ in photos], labels=[y for _, y in photos])
        return fn.decoders.image(jpegs, device="cpu", output_type=types.RGB, jpeg_fancy_upsampling=False), labels

    pipe = pipeline()
    pipe.build()
    batches = args.take // args.batch

    def measure():
        start = time.perf_counter()
        for _ in range(batches):
            photos, _ = pipe.run()
            photos.as_array()  # one array a batch, as a model wants it
        return batches * args.batch / (time.perf_counter() - start)

    return f"NVIDIA DALI {dali_.__version__} on CPU, {args.threads} threads", measure


def opencv(args):
    import cv2
    import numpy

    cv2.setNumThreads(1)
    paths = [path for path, _ in contest.list_photos(args.images)]
    paths = (paths * (args.take // len(paths) + 1))[: args.take // args.batch * args.batch]
    pool = concurrent.futures.ThreadPoolExecutor(args.threads)

    def measure():
        start = time.perf_counter()
        photos = []
        for photo in pool.map(cv2.imread, paths):
            photos.append(photo)
            if len(photos) == args.batch:
                numpy.stack(photos)
                photos.clear()
        return len(paths) / (time.perf_counter() - start)

    return f"OpenCV {cv2.__version__}, {args.threads} threads", measure


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=["dali", "opencv"])
    parser.add_argument("--images")
    parser.add_argument("--records")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--take", type=int, default=9600)
    args = parser.parse_args()
    name, measure = {"dali": dali, "opencv": opencv}[args.way](args)
    contest.serve(name, measure)


if __name__ == "__main__":
    main()
