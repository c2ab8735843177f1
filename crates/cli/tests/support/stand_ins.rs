//! Scripts as people write them, and stand-ins for the frameworks that they import, which are too large to install for every test: the parts that
//! scripts call and the recorder listens to.

#![allow(dead_code, unreachable_pub)] // every test file uses a part of it

use super::support::{self, said};
use serde_json::Value;
use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};
use tempfile::TempDir;

/// The calls a training loop makes, without the arithmetic.
pub const TORCH: &[(&str, &str)] = &[
    (
        "torch/__init__.py",
        "
__version__ = '0.0 (stand-in)'
class Tensor:
    def __init__(self, values): self.values = values; self.device = self; self.type = 'cpu'
    @property
    def shape(self): return (len(self.values),)
    def dim(self): return 1
    def numel(self): return len(self.values)
    def detach(self): return self
    def __float__(self): return float(self.values[0])
    def backward(self): autograd.backward(self)
def get_num_threads(): return 1
from . import autograd, optim, utils, distributed
",
    ),
    ("torch/autograd.py", "def backward(tensors, *args): pass\n"),
    ("torch/distributed.py", "def is_available(): return False\n"),
    ("torch/optim/__init__.py", "from .optimizer import SGD\n"),
    (
        "torch/optim/optimizer.py",
        "
_hooks = []
def register_optimizer_step_post_hook(hook): _hooks.append(hook)
class SGD:
    param_groups = [{'lr': 0.5}]
    def step(self):
        for hook in _hooks: hook(self, (), {})
",
    ),
    ("torch/utils/__init__.py", "from . import data\n"),
    (
        "torch/utils/data.py",
        "
class DataLoader:
    num_workers = 0
    def __init__(self, dataset): self.dataset = dataset
    def __iter__(self): return iter(self.dataset)
",
    ),
];

/// The same of JAX.
pub const JAX: &[(&str, &str)] = &[
    (
        "jax/__init__.py",
        "
__version__ = '0.0 (stand-in)'
import functools
from . import core, tree_util
class Array:
    def __init__(self, shape, value=0.0): self.shape = shape; self.value = value; self.dtype = self; self.kind = 'f'
    def __float__(self): return self.value
def jit(fun=None, **options):
    if fun is None: return functools.partial(jit, **options)
    @functools.wraps(fun)
    def compiled(*args): return fun(*args)
    compiled.lower = lambda: 'lowered'
    return compiled
pmap = jit
def block_until_ready(value): return value
",
    ),
    ("jax/core.py", "class Tracer: pass\n"),
    (
        "jax/tree_util.py",
        "
def tree_leaves(tree):
    if isinstance(tree, (tuple, list)): return [leaf for part in tree for leaf in tree_leaves(part)]
    if isinstance(tree, dict): return tree_leaves(list(tree.values()))
    return [] if tree is None else [tree]
",
    ),
];

/// What PyTorch has besides where several processes train together: a module whose gradients are summed over them at the end of
/// each backward pass, over a slow link. Sums are counted in a file.
pub const DISTRIBUTED: &[(&str, &str)] = &[
    (
        "torch/futures.py",
        "
class Future:
    def set_result(self, value): self.value = value
    def wait(self): return self.value
",
    ),
    ("torch/distributed/__init__.py", "import torch.futures\ndef is_available(): return True\n"),
    ("torch/distributed/algorithms/__init__.py", ""),
    ("torch/distributed/algorithms/ddp_comm_hooks/__init__.py", ""),
    (
        "torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py",
        "
import time
from torch.futures import Future
class Summed(Future):
    def wait(self):
        time.sleep(0.05)
        return self.value
def allreduce_hook(group, bucket):
    with open('sums', 'a') as file: file.write('+')
    future = Summed()
    future.set_result(bucket.buffer())
    return future
",
    ),
    ("torch/nn/__init__.py", "from . import parallel\n"),
    (
        "torch/nn/parallel.py",
        "
modules = []
class Bucket:
    def buffer(self): return [0.0]
class DistributedDataParallel:
    def __init__(self, module): self.module, self.hook = module, None; modules.append(self)
    def register_comm_hook(self, state, hook): self.hook = (state, hook)
    def forward(self, batch): return self.module(batch)
    def __call__(self, batch): return self.forward(batch)
    def reduce(self):
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
        state, hook = self.hook or (None, allreduce_hook)
        hook(state, Bucket()).wait()
",
    ),
    (
        "torch/autograd.py",
        "
from torch.nn import parallel
def backward(tensors, *args):
    for module in parallel.modules: module.reduce()
",
    ),
];

/// A script as a user writes it: slow data, a step, and scoring after every epoch.
pub const SCRIPT: &str = "
import time, torch
from torch.utils.data import DataLoader
class Photos:
    def __iter__(self):
        for number in range(40):
            time.sleep(0.01)
            yield torch.Tensor([0.0] * 16), torch.Tensor([1.0] * 16)
train, test, optimizer = DataLoader(Photos()), DataLoader(Photos()), torch.optim.SGD()
for epoch in range(3):
    for images, labels in train:
        loss = torch.Tensor([0.5])
        loss.backward()
        optimizer.step()
    for images, labels in test:
        pass
print('trained')
";

pub struct Place {
    pub folder: TempDir,
    pub python: std::path::PathBuf,
}

/// A folder with the stand-in and a script in it; nothing where there is no Python.
pub fn place(script: &str) -> Option<Place> {
    let python = paceline_testing::python("json")?;
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in TORCH.iter().chain(JAX) {
        let path = folder.path().join("lib").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fs::write(folder.path().join("train.py"), script).unwrap();
    Some(Place { folder, python })
}

impl Place {
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = support::paceline();
        command
            .current_dir(self.folder.path())
            .args(words)
            .args(["--", self.python.to_str().unwrap()]);
        command.env("PYTHONPATH", self.folder.path().join("lib")).stdin(Stdio::null());
        command.env("NO_COLOR", "1");
        command
    }

    pub fn run(&self, words: &[&str]) -> Output {
        self.command(words).arg("train.py").output().unwrap()
    }
}

/// The JSON document behind whatever the script printed.
pub fn document(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let at = text.find('{').unwrap_or_else(|| panic!("{text}\n{}", said(output)));
    serde_json::from_str(&text[at..]).unwrap()
}

pub fn files(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
