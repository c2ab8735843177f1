"""Writes `tiny.pth` and `tiny-bare.pth` in both layouts of PyTorch's files, with Python's own pickle and zipfile and without
PyTorch: stand-ins for its modules are enough, because a pickle holds names of calls and not their code."""

import collections, io, pickle, struct, sys, types, zipfile

torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
sys.modules.update({"torch": torch, "torch._utils": utils})
KINDS = {"FloatStorage": "f", "HalfStorage": "e", "DoubleStorage": "d", "LongStorage": "q"}
for name in KINDS:
    setattr(torch, name, type(name, (), {"__module__": "torch"}))
def rebuild(*_): ...
rebuild.__module__, rebuild.__qualname__, rebuild.__name__ = "torch._utils", "_rebuild_tensor_v2", "_rebuild_tensor_v2"
utils._rebuild_tensor_v2 = rebuild

class Storage:
    def __init__(self, key, kind, values):
        self.key, self.kind, self.values = key, kind, values
    def raw(self):
        return struct.pack(f"<{len(self.values)}{KINDS[self.kind]}", *self.values)

class Tensor:
    def __init__(self, storage, offset, size, stride):
        self.parts = (storage, offset, size, stride, False, collections.OrderedDict())
    def __reduce__(self):
        return rebuild, self.parts

STORAGES = [
    Storage("0", "FloatStorage", [0.5, -1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    Storage("1", "HalfStorage", [1.5, -2.0]),
    Storage("2", "DoubleStorage", [0.25]),
    Storage("3", "LongStorage", [7]),
]
state = collections.OrderedDict()
state["module.whole.weight"] = Tensor(STORAGES[0], 1, (2, 3), (3, 1))
state["module.turned.weight"] = Tensor(STORAGES[0], 1, (3, 2), (1, 3))
state["module.half.bias"] = Tensor(STORAGES[1], 0, (2,), (1,))
state["module.double.bias"] = Tensor(STORAGES[2], 0, (1,), (1,))
state["module.norm.num_batches_tracked"] = Tensor(STORAGES[3], 0, (), ())
state._metadata = collections.OrderedDict(version=1)

def pickled(value, older):
    out = io.BytesIO()
    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            if isinstance(value, Storage):
                known = ("storage", getattr(torch, value.kind), value.key, "cpu", len(value.values))
                return known + (None,) if older else known
    Pickler(out, protocol=2).dump(value)
    return out.getvalue()

with zipfile.ZipFile("tiny.pth", "w") as archive:
    archive.writestr("tiny/data.pkl", pickled({"epoch": 3, "state_dict": state, "best": 0.5}, False))
    for storage in STORAGES:
        archive.writestr(f"tiny/data/{storage.key}", storage.raw())
    archive.writestr("tiny/version", "3\n")
with open("tiny-bare.pth", "wb") as file:
    for value in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True, "type_sizes": {"int": 4}}):
        file.write(pickle.dumps(value, protocol=2))
    file.write(pickled(state, True))
    file.write(pickle.dumps([storage.key for storage in STORAGES], protocol=2))
    for storage in STORAGES:
        file.write(struct.pack("<q", len(storage.values)) + storage.raw())
