"""Records a training loop of any framework into a Paceline run folder.

    import paceline

    with paceline.Run("resnet18 on cifar10", batch_size=128) as run:
        for images, labels in run.batches(loader):
            loss = train(images, labels)
            run.step(loss)

`paceline report runs/…` then says where the time went. Recording never breaks or blocks the training: an error in here is
one warning, and nothing is recorded from there on. The format is described in docs/run-folder.md.
"""

from ._read import RunRecord, read
from ._run import Run

__all__ = ["Run", "RunRecord", "read"]
__version__ = "0.1.0"
