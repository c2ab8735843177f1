//! A machine for the pickles of tensors: a stack, a memory, and three calls.
//!
//! Everything it makes lies in one list and is referred to by number, so that no file can make it recurse, and what is
//! mentioned twice is there once.

use super::{MOST_DIMENSIONS, PthError, Storages};
use safetensors::Dtype;
use std::{collections::HashMap, ops::Index};

/// A place in the heap.
pub(super) type Item = usize;

/// What an instruction makes.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    /// Nothing, a truth value, a fraction: what no tensor is made of.
    Other,
    Number(i64),
    Text(String),
    Tuple(Vec<Item>),
    List(Vec<Item>),
    Dict(Vec<(Item, Item)>),
    /// The name of a call.
    Call(Callable),
    Storage(Storage),
    Tensor(Tensor),
}

/// The calls that are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Callable {
    OrderedDict,
    RebuildTensor,
    RebuildParameter,
    /// The kind of a storage, by what it holds.
    Holds(Kind),
}

/// What a storage holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Float(Dtype),
    Double,
    /// Counts and the like, which no weight is made of; the bytes of one.
    Whole(usize),
}

impl Kind {
    fn width(self) -> usize {
        match self {
            Self::Float(Dtype::F16 | Dtype::BF16) => 2,
            Self::Float(_) => 4,
            Self::Double => 8,
            Self::Whole(width) => width,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Storage {
    kind: Kind,
    key: String,
}

/// A view of a storage.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tensor {
    storage: Storage,
    offset: usize,
    pub(super) size: Vec<usize>,
    stride: Vec<usize>,
}

impl Tensor {
    /// Its values in order; double precision becomes single. Takes what it needs from the bytes `left`.
    pub(super) fn copy(
        &self,
        storages: &Storages<'_>,
        left: &mut usize,
    ) -> Result<(Dtype, Vec<u8>), &'static str> {
        let stored = storages.get(&self.storage.key).ok_or("has no values")?;
        let width = self.storage.kind.width();
        let count = self.size.iter().try_fold(1usize, |count, side| count.checked_mul(*side));
        let bytes = count.and_then(|count| count.checked_mul(width)).filter(|bytes| bytes <= left);
        let (Some(count), Some(bytes)) = (count, bytes) else {
            return Err("is larger than the file");
        };
        *left -= bytes;
        let mut values = Vec::with_capacity(bytes);
        let mut place = vec![0usize; self.size.len()];
        for _ in 0..count {
            let mut steps = place.iter().zip(&self.stride);
            let at = steps
                .try_fold(self.offset, |at, (place, stride)| {
                    at.checked_add(place.checked_mul(*stride)?)
                })
                .and_then(|at| at.checked_mul(width))
                .and_then(|at| stored.get(at..at.checked_add(width)?))
                .ok_or("reaches beyond its values")?;
            if self.storage.kind == Kind::Double {
                let double: [u8; 8] = at.try_into().map_err(|_| "reaches beyond its values")?;
                values.extend_from_slice(&(f64::from_le_bytes(double) as f32).to_le_bytes());
            } else {
                values.extend_from_slice(at);
            }
            for (place, side) in place.iter_mut().zip(&self.size).rev() {
                *place += 1;
                if *place < *side {
                    break;
                }
                *place = 0;
            }
        }
        let dtype = match self.storage.kind {
            Kind::Float(dtype) => dtype,
            Kind::Double => Dtype::F32,
            Kind::Whole(1) => Dtype::U8,
            Kind::Whole(2) => Dtype::I16,
            Kind::Whole(4) => Dtype::I32,
            Kind::Whole(_) => Dtype::I64,
        };
        Ok((dtype, values))
    }
}

/// Everything that was made.
#[derive(Debug, Default)]
pub(super) struct Heap(Vec<Node>);

impl Index<Item> for Heap {
    type Output = Node;

    fn index(&self, item: Item) -> &Node {
        &self.0[item]
    }
}

/// The call of a name, if it is one that rebuilds tensors.
fn callable(module: &str, name: &str) -> Option<Callable> {
    Some(match (module, name) {
        ("collections", "OrderedDict") => Callable::OrderedDict,
        ("torch._utils", "_rebuild_tensor_v2") => Callable::RebuildTensor,
        ("torch._utils", "_rebuild_parameter") => Callable::RebuildParameter,
        ("torch", "FloatStorage") => Callable::Holds(Kind::Float(Dtype::F32)),
        ("torch", "HalfStorage") => Callable::Holds(Kind::Float(Dtype::F16)),
        ("torch", "BFloat16Storage") => Callable::Holds(Kind::Float(Dtype::BF16)),
        ("torch", "DoubleStorage") => Callable::Holds(Kind::Double),
        ("torch", "LongStorage") => Callable::Holds(Kind::Whole(8)),
        ("torch", "IntStorage") => Callable::Holds(Kind::Whole(4)),
        ("torch", "ShortStorage") => Callable::Holds(Kind::Whole(2)),
        ("torch", "ByteStorage" | "CharStorage" | "BoolStorage") => Callable::Holds(Kind::Whole(1)),
        _ => return None,
    })
}

/// The bytes of a pickle that are still to be read.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

const SHORT: PthError = PthError::Damaged("it ends too early");
const EMPTY: PthError = PthError::Damaged("it takes what is not there");

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], PthError> {
        let end = self.at.checked_add(count).ok_or(SHORT)?;
        let found = self.bytes.get(self.at..end).ok_or(SHORT)?;
        self.at = end;
        Ok(found)
    }

    fn byte(&mut self) -> Result<u8, PthError> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self, bytes: usize) -> Result<usize, PthError> {
        let found = self.take(bytes)?;
        Ok(found.iter().rev().fold(0, |value, &byte| value << 8 | usize::from(byte)))
    }

    fn line(&mut self) -> Result<&'a str, PthError> {
        let rest = &self.bytes[self.at..];
        let len = rest.iter().position(|&byte| byte == b'\n').ok_or(SHORT)?;
        let line = std::str::from_utf8(self.take(len)?);
        self.at += 1;
        line.map_err(|_| PthError::Damaged("a name is not text"))
    }

    fn text(&mut self, len: usize) -> Result<Node, PthError> {
        Ok(Node::Text(String::from_utf8_lossy(self.take(len)?).into_owned()))
    }
}

/// The stack of a pickle, and what it has noted.
#[derive(Default)]
struct Stack {
    items: Vec<Item>,
    marks: Vec<usize>,
    notes: HashMap<usize, Item>,
}

impl Stack {
    fn pop(&mut self) -> Result<Item, PthError> {
        // What lies below a mark belongs to the instruction that looks for it.
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.items.len() <= floor { Err(EMPTY) } else { self.items.pop().ok_or(EMPTY) }
    }

    fn top(&self) -> Result<Item, PthError> {
        self.items.last().copied().ok_or(EMPTY)
    }

    fn since_mark(&mut self) -> Result<Vec<Item>, PthError> {
        let from = self.marks.pop().ok_or(EMPTY)?;
        if from > self.items.len() { Err(EMPTY) } else { Ok(self.items.split_off(from)) }
    }
}

impl Heap {
    fn add(&mut self, node: Node) -> Item {
        self.0.push(node);
        self.0.len() - 1
    }

    /// Bytes of one value of the storage with this key, where a tensor has mentioned it.
    pub(super) fn width_of(&self, key: &str) -> Option<usize> {
        self.0.iter().find_map(|node| match node {
            Node::Storage(storage) if storage.key == key => Some(storage.kind.width()),
            _ => None,
        })
    }

    /// Carries out one pickle: what it makes, and how many bytes it has.
    pub(super) fn run(&mut self, bytes: &[u8]) -> Result<(Item, usize), PthError> {
        let mut reader = Reader { bytes, at: 0 };
        let mut stack = Stack::default();
        loop {
            let code = reader.byte()?;
            if code == b'.' {
                return Ok((stack.pop()?, reader.at));
            }
            if self.shape(code, &mut stack)? {
                continue;
            }
            let node = match code {
                0x80 => {
                    reader.take(1)?; // the version
                    continue;
                }
                0x95 => {
                    reader.take(8)?; // the length of a frame
                    continue;
                }
                b'q' | b'r' | 0x94 => {
                    let note = match code {
                        b'q' => reader.number(1)?,
                        b'r' => reader.number(4)?,
                        _ => stack.notes.len(),
                    };
                    let top = stack.top()?;
                    stack.notes.insert(note, top);
                    continue;
                }
                b'h' | b'j' => {
                    let note = reader.number(if code == b'h' { 1 } else { 4 })?;
                    let noted = stack.notes.get(&note).copied();
                    stack.items.push(noted.ok_or(PthError::Damaged("a note is missing"))?);
                    continue;
                }
                _ => self.value(code, &mut reader)?,
            };
            let item = self.add(node);
            stack.items.push(item);
        }
    }

    /// A value that the pickle spells out.
    fn value(&mut self, code: u8, reader: &mut Reader<'_>) -> Result<Node, PthError> {
        Ok(match code {
            b'N' | 0x88 | 0x89 => Node::Other,
            b'G' => {
                reader.take(8)?;
                Node::Other
            }
            b'K' => Node::Number(reader.number(1)? as i64),
            b'M' => Node::Number(reader.number(2)? as i64),
            b'J' => Node::Number(i64::from(reader.number(4)? as u32 as i32)),
            0x8a => {
                let len = usize::from(reader.byte()?);
                let digits = reader.take(len)?;
                // Longer ones are marks of the format, and no sizes.
                let fits = (1..=8).contains(&len);
                let fill = digits.last().is_some_and(|last| last & 0x80 != 0) && fits;
                let mut all = [if fill { 0xff } else { 0 }; 8];
                if fits {
                    all[..len].copy_from_slice(digits);
                }
                if len > 8 { Node::Other } else { Node::Number(i64::from_le_bytes(all)) }
            }
            b'X' | b'T' => {
                let len = reader.number(4)?;
                reader.text(len)?
            }
            0x8c | b'U' => {
                let len = reader.number(1)?;
                reader.text(len)?
            }
            b'}' => Node::Dict(Vec::new()),
            b']' => Node::List(Vec::new()),
            b')' => Node::Tuple(Vec::new()),
            b'c' => {
                let (module, name) = (reader.line()?, reader.line()?);
                let known = callable(module, name);
                Node::Call(known.ok_or_else(|| PthError::Call(format!("{module}.{name}")))?)
            }
            other => return Err(PthError::Instruction(other)),
        })
    }

    /// Instructions that put together what is on the stack; says whether it was one.
    fn shape(&mut self, code: u8, stack: &mut Stack) -> Result<bool, PthError> {
        match code {
            b'(' => stack.marks.push(stack.items.len()),
            b'0' => drop(stack.pop()?),
            b't' | 0x85..=0x87 => {
                let items = match code {
                    b't' => stack.since_mark()?,
                    _ => {
                        let count = usize::from(code - 0x84);
                        let mut items =
                            (0..count).map(|_| stack.pop()).collect::<Result<Vec<_>, _>>()?;
                        items.reverse();
                        items
                    }
                };
                let tuple = self.add(Node::Tuple(items));
                stack.items.push(tuple);
            }
            b's' | b'u' => {
                let items = match code {
                    b'u' => stack.since_mark()?,
                    _ => {
                        let value = stack.pop()?;
                        vec![stack.pop()?, value]
                    }
                };
                let target = stack.top()?;
                let Node::Dict(pairs) = &mut self.0[target] else { return Err(EMPTY) };
                pairs.extend(items.as_chunks::<2>().0.iter().map(|pair| (pair[0], pair[1])));
            }
            b'a' | b'e' => {
                let items = if code == b'e' { stack.since_mark()? } else { vec![stack.pop()?] };
                let target = stack.top()?;
                let Node::List(list) = &mut self.0[target] else { return Err(EMPTY) };
                list.extend(items);
            }
            // What a dictionary of weights has noted beside them.
            b'b' => drop(stack.pop()?),
            b'R' => {
                let (arguments, call) = (stack.pop()?, stack.pop()?);
                let made = self.call(call, arguments)?;
                stack.items.push(made);
            }
            b'Q' => {
                let id = stack.pop()?;
                let storage = self.storage(id).ok_or(PthError::Damaged("no storage"))?;
                let storage = self.add(Node::Storage(storage));
                stack.items.push(storage);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `('storage', kind, key, device, count)`; older files have one more.
    fn storage(&self, id: Item) -> Option<Storage> {
        let Node::Tuple(parts) = &self[id] else { return None };
        let [word, kind, key, ..] = parts[..] else { return None };
        match (&self[word], &self[kind], &self[key]) {
            (Node::Text(word), Node::Call(Callable::Holds(kind)), Node::Text(key))
                if word == "storage" =>
            {
                Some(Storage { kind: *kind, key: key.clone() })
            }
            _ => None,
        }
    }

    fn call(&mut self, call: Item, arguments: Item) -> Result<Item, PthError> {
        let foreign = PthError::Damaged("a tensor is put together of something else");
        let (Node::Call(call), Node::Tuple(arguments)) = (&self[call], &self[arguments]) else {
            return Err(foreign);
        };
        match call {
            Callable::OrderedDict => Ok(self.add(Node::Dict(Vec::new()))),
            Callable::RebuildParameter => arguments.first().copied().ok_or(foreign),
            Callable::RebuildTensor => {
                let tensor = self.tensor(arguments).ok_or(foreign)?;
                Ok(self.add(Node::Tensor(tensor)))
            }
            Callable::Holds(_) => Err(foreign),
        }
    }

    /// `(storage, offset, size, stride, …)`.
    fn tensor(&self, arguments: &[Item]) -> Option<Tensor> {
        let [storage, offset, size, stride, ..] = arguments[..] else { return None };
        let number = |item: Item| match &self[item] {
            Node::Number(number) => usize::try_from(*number).ok(),
            _ => None,
        };
        let numbers = |item: Item| -> Option<Vec<usize>> {
            let Node::Tuple(items) = &self[item] else { return None };
            items.iter().map(|item| number(*item)).collect()
        };
        let Node::Storage(storage) = &self[storage] else { return None };
        let (size, stride) = (numbers(size)?, numbers(stride)?);
        let fits = size.len() == stride.len() && size.len() <= MOST_DIMENSIONS;
        let offset = number(offset)?;
        fits.then_some(Tensor { storage: storage.clone(), offset, size, stride })
    }
}
