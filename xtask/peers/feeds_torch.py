"""One PyTorch training, fed in turns by paceline.Loader, torchvision's ImageFolder, tf.data, MosaicML Streaming and webdataset.

python feeds_torch.py PHOTOS SHARDS WORK [ROUNDS]      prints one JSON document: images per second of each, in turns

PHOTOS is a folder of photos in class folders, SHARDS the same as `paceline prepare` wrote it, WORK a folder for the other formats. Every feed
gets a process of its own per round, decodes JPEG to 96x96 and is read for an epoch before the epoch that counts. tf.data needs TensorFlow to
be importable (its site-packages may be given as TENSORFLOW_PATH).
"""

import json
import os
import pathlib
import subprocess
import sys
import time

SIZE, BATCH, WORKERS = 96, 32, 2
FEEDS = ("paceline", "paceline-photos", "imagefolder", "tf.data", "streaming", "webdataset")


def files(photos):
    classes = sorted(entry.name for entry in os.scandir(photos) if entry.is_dir())
    return [(path, number) for number, name in enumerate(classes) for path in sorted(pathlib.Path(photos, name).glob("*.jp*g"))]


def write_others(photos, work):
    """The same photos, resized once, as the other formats want them."""
    import io
    import tarfile

    from PIL import Image
    from streaming import MDSWriter

    mds, tar = pathlib.Path(work, "mds"), pathlib.Path(work, "photos.tar")
    if tar.exists():
        return
    with MDSWriter(out=str(mds), columns={"image": "jpeg", "label": "int"}) as out, tarfile.open(tar, "w") as archive:
        for index, (path, label) in enumerate(files(photos)):
            image = Image.open(path).convert("RGB").resize((SIZE, SIZE))
            packed = io.BytesIO()
            image.save(packed, "JPEG", quality=90)
            out.write({"image": Image.open(io.BytesIO(packed.getvalue())), "label": label})
            for name, data in (("jpg", packed.getvalue()), ("cls", str(label).encode())):
                entry = tarfile.TarInfo(f"{index:06}.{name}")
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))


def batches(feed, photos, shards, work):
    """A function that gives the batches of one epoch: images as float tensors in channels-first order, and labels."""
    import numpy as np
    import torch
    from torch.utils.data import DataLoader

    def to_tensor(image):
        array = np.asarray(image.convert("RGB").resize((SIZE, SIZE)))
        return torch.from_numpy(array.copy()).permute(2, 0, 1)

    if feed.startswith("paceline"):
        import paceline

        data = shards if feed == "paceline" else photos
        loader = paceline.Loader(data, batch_size=BATCH, seed=1, split="train" if feed == "paceline" else None, size=(SIZE, SIZE), worker=0, workers=1)
        return lambda: ((torch.from_numpy(images).permute(0, 3, 1, 2), torch.from_numpy(labels)) for images, labels in loader)
    if feed == "imagefolder":
        from torchvision.datasets import ImageFolder

        usable = {str(path) for path, _ in files(photos)}
        dataset = ImageFolder(photos, transform=to_tensor, is_valid_file=lambda path: path in usable)
        return lambda: iter(DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=False))
    if feed == "tf.data":
        if os.environ.get("TENSORFLOW_PATH"):
            sys.path.append(os.environ["TENSORFLOW_PATH"])
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        import tensorflow as tf

        paths, labels = zip(*((str(path), label) for path, label in files(photos)))

        def decode(path, label):
            image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
            return tf.transpose(tf.image.resize(image, (SIZE, SIZE)), (2, 0, 1)), label

        dataset = tf.data.Dataset.from_tensor_slices((list(paths), list(labels))).shuffle(len(paths), seed=1)
        dataset = dataset.map(decode, num_parallel_calls=tf.data.AUTOTUNE).batch(BATCH).prefetch(tf.data.AUTOTUNE)
        return lambda: ((torch.from_numpy(x.copy()), torch.from_numpy(y).long()) for x, y in dataset.as_numpy_iterator())
    if feed == "streaming":
        from streaming import StreamingDataset

        class Photos(StreamingDataset):
            def __getitem__(self, index):
                sample = super().__getitem__(index)
                return to_tensor(sample["image"]), sample["label"]

        dataset = Photos(local=str(pathlib.Path(work, "mds")), shuffle=True, batch_size=BATCH)
        return lambda: iter(DataLoader(dataset, batch_size=BATCH, num_workers=WORKERS))
    import webdataset

    dataset = webdataset.WebDataset(str(pathlib.Path(work, "photos.tar")), shardshuffle=False, empty_check=False)
    dataset = dataset.shuffle(1000).decode("pil").to_tuple("jpg", "cls").map_tuple(to_tensor, int)
    return lambda: iter(DataLoader(dataset, batch_size=BATCH, num_workers=1))


def train(feed, photos, shards, work):
    import torch
    from torch import nn

    torch.manual_seed(0)
    epoch = batches(feed, photos, shards, work)
    model = nn.Sequential(nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for counted in (False, True):
        seen, begun = 0, time.perf_counter()
        for images, labels in epoch():
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images.float() / 255), labels)
            loss.backward()
            optimizer.step()
            seen += len(labels)
        if counted:
            print(json.dumps({"images": seen, "seconds": time.perf_counter() - begun, "loss": loss.item()}))


if __name__ == "__main__" and sys.argv[1] == "--one":
    train(*sys.argv[2:6])
elif __name__ == "__main__":
    photos, shards, work = (os.path.abspath(word) for word in sys.argv[1:4])
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 5
    os.makedirs(work, exist_ok=True)
    write_others(photos, work)
    rates = {feed: [] for feed in FEEDS}
    for number in range(rounds):
        for feed in FEEDS if number % 2 == 0 else reversed(FEEDS):
            words = [sys.executable, __file__, "--one", feed, photos, shards, work]
            done = subprocess.run(words, capture_output=True, text=True)
            if done.returncode != 0:
                print(feed, done.stderr[-800:], file=sys.stderr)
                continue
            found = json.loads(done.stdout.strip().splitlines()[-1])
            rates[feed].append(found["images"] / found["seconds"])
    print(json.dumps({feed: sorted(found) for feed, found in rates.items()}))
