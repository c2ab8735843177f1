"""Records a training loop of any framework into a Paceline run folder.

    import paceline

    with paceline.Run("resnet18 on cifar10", batch_size=128) as run:
        for images, labels in run.batches(loader):
            loss = train(images, labels)
            run.step(loss)

`paceline report runs/…` then says where the time went. Recording never breaks or blocks the training: an error in here is
one warning, and nothing is recorded from there on. The format is described in docs/run-folder.md.
"""

from ._callbacks import keras_callback, lightning_callback, trainer_callback
from ._loader import Batch, Loader, TFRecordReader
from ._profile import torch_layers, write_layers, write_profile
from ._read import RunRecord, read
from ._run import Run

__all__ = [
    "Batch",
    "Loader",
    "Run",
    "RunRecord",
    "TFRecordReader",
    "keras_callback",
    "lightning_callback",
    "read",
    "torch_layers",
    "trainer_callback",
    "write_layers",
    "write_profile",
]
__version__ = "0.2.0"
