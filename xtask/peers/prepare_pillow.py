"""Pillow on N processes: photos -> centre crop -> antialiased resize -> JPEG -> TFRecord, one shard a process.

Settings that serve Pillow best: libjpeg-turbo's scaled decoding (`draft`) where asked for, resize straight from the crop
box, forked workers kept alive between measurements, CRC32C from Google's C extension, start-up outside the clock.
"""
import argparse
import io
import struct

import google_crc32c
import PIL
from PIL import Image

import contest


def masked(data):
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number, payload):
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def example(jpeg, label):
    features = {b"image/encoded": field(1, field(1, jpeg)), b"image/class/label": field(3, field(1, varint(label)))}
    return field(1, b"".join(field(1, field(1, key) + field(2, value)) for key, value in features.items()))


def frame(record):
    head = struct.pack("<Q", len(record))
    return head + struct.pack("<I", masked(head)) + record + struct.pack("<I", masked(record))


def prepare(path, label, side, quality, draft):
    with Image.open(path) as photo:
        if draft:
            photo.draft("RGB", (side, side))
        photo = photo.convert("RGB")
        width, height = photo.size
        short = min(width, height)
        left, top = (width - short) / 2, (height - short) / 2
        photo = photo.resize((side, side), Image.BILINEAR, box=(left, top, left + short, top + short))
        out = io.BytesIO()
        photo.save(out, "JPEG", quality=quality)
    return frame(example(out.getvalue(), label))


def shard(job):
    name, photos, side, quality, draft = job
    with open(name, "wb") as out:
        for path, label in photos:
            out.write(prepare(path, label, side, quality, draft))
    return len(photos)


def main():
    parser = argparse.ArgumentParser()
    contest.shard_flags(parser)
    parser.add_argument("--draft", action="store_true")
    args = parser.parse_args()
    name = f"Pillow {PIL.__version__} x {args.processes} processes" + (", scaled decoding" if args.draft else "")
    contest.serve_shards(name, shard, args, "pillow", args.draft)


if __name__ == "__main__":
    main()
