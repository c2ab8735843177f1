"""The fastest common ways to prepare photos on N processes: photos -> centre crop -> resize -> JPEG -> TFRecord, one shard a process.

opencv: reduced decoding (IMREAD_REDUCED_COLOR_*), INTER_AREA, OpenCV's encoder.
vips:   libvips' `thumbnail`, which decodes at reduced size, crops to the centre and filters.
turbo:  libjpeg-turbo through simplejpeg for decoding at reduced size and encoding, OpenCV between.
"""
import argparse
import os

import contest
from prepare_pillow import example, frame


def reduction(short, side):
    """The largest power of two by which the photo may be decoded smaller and still be as large as the result."""
    factor = 1
    while factor < 8 and short // (2 * factor) >= side:
        factor *= 2
    return factor


def centre(photo):
    height, width = photo.shape[:2]
    short = min(height, width)
    top, left = (height - short) // 2, (width - short) // 2
    return photo[top : top + short, left : left + short]


def opencv(path, side, quality):
    import cv2
    from PIL import Image

    flags = {1: cv2.IMREAD_COLOR, 2: cv2.IMREAD_REDUCED_COLOR_2, 4: cv2.IMREAD_REDUCED_COLOR_4, 8: cv2.IMREAD_REDUCED_COLOR_8}
    with Image.open(path) as head:  # reads the header alone
        short = min(head.size)
    photo = centre(cv2.imread(path, flags[reduction(short, side)]))
    photo = cv2.resize(photo, (side, side), interpolation=cv2.INTER_AREA)
    return cv2.imencode(".jpg", photo, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()


def vips(path, side, quality):
    import pyvips

    photo = pyvips.Image.thumbnail(path, side, height=side, crop="centre")
    return photo.jpegsave_buffer(Q=quality)


def turbo(path, side, quality):
    import cv2
    import simplejpeg

    with open(path, "rb") as file:
        data = file.read()
    height, width, *_ = simplejpeg.decode_jpeg_header(data)
    least = side / min(height, width)
    photo = simplejpeg.decode_jpeg(data, fastdct=True, fastupsample=True, min_height=int(height * least) + 1, min_width=int(width * least) + 1, min_factor=1)
    photo = cv2.resize(centre(photo), (side, side), interpolation=cv2.INTER_AREA)
    return simplejpeg.encode_jpeg(photo, quality=quality, colorsubsampling="420", fastdct=True)


WAYS = {"opencv": opencv, "vips": vips, "turbo": turbo}


def name(way):
    if way == "vips":
        import pyvips

        return f"libvips {pyvips.version(0)}.{pyvips.version(1)} thumbnail"
    import cv2

    return f"OpenCV {cv2.__version__}, " + ("reduced decoding" if way == "opencv" else "libjpeg-turbo by simplejpeg")


def shard(job):
    file, photos, side, quality, way = job
    if way != "vips":
        import cv2

        cv2.setNumThreads(1)
    with open(file, "wb") as out:
        for path, label in photos:
            out.write(frame(example(WAYS[way](path, side, quality), label)))
    return len(photos)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=WAYS)
    contest.shard_flags(parser)
    args = parser.parse_args()
    os.environ["VIPS_CONCURRENCY"] = "1"
    contest.serve_shards(f"{name(args.way)} x {args.processes} processes", shard, args, args.way, args.way)


if __name__ == "__main__":
    main()
