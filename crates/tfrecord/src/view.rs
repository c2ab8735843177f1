//! Finds named features in an encoded `tf.train.Example` without decoding it.
//!
//! The hot path of a loader wants the JPEG and the label of each record, a few
//! thousand times a second on every core. Decoding the message would copy the
//! JPEG and allocate a map to throw it away; the view walks the bytes and
//! lends slices of them.
//!
//! What it finds is what a full decoder would find, merging rules included:
//! the last entry of a name wins, lists of one kind that are split are joined,
//! and a later kind replaces an earlier one. Only the features asked for are
//! checked; the rest is stepped over.

use crate::wire::{Fields, Malformed, Value, take_varint};

/// What a feature holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FeatureKind {
    /// Nothing: the feature is named, but none of the three lists is set.
    Unset,
    /// A list of byte strings.
    Bytes,
    /// A list of 32-bit floats.
    Float,
    /// A list of 64-bit integers.
    Int64,
}

/// An encoded example, looked at but not decoded.
///
/// ```
/// use paceline_tfrecord::{Example, ExampleView, Feature};
/// let encoded = Example::new().with("label", Feature::ints([7])).to_bytes();
/// let [label, missing] = ExampleView::new(&encoded).find(["label", "image"])?;
/// assert_eq!(label.and_then(|label| label.first_int()), Some(7));
/// assert!(missing.is_none());
/// # Ok::<(), paceline_tfrecord::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ExampleView<'a> {
    bytes: &'a [u8],
}

impl<'a> ExampleView<'a> {
    /// Looks at `bytes`; nothing is checked before something is asked.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The feature of this name, if there is one.
    pub fn feature(&self, name: &str) -> Result<Option<FeatureView<'a>>, Malformed> {
        let [feature] = self.find([name])?;
        Ok(feature)
    }

    /// Several features in one walk, in the order of `names`.
    pub fn find<const N: usize>(
        &self,
        names: [&str; N],
    ) -> Result<[Option<FeatureView<'a>>; N], Malformed> {
        let mut found = [None; N];
        let mut entries = Entries::new(self.bytes);
        while let Some(entry) = entries.next_entry()? {
            let key = entry_key(entry)?;
            for (name, found) in names.iter().zip(&mut found) {
                if key == name.as_bytes() {
                    *found = Some(entry);
                }
            }
        }
        let mut features = [None; N];
        for (entry, feature) in found.iter().zip(&mut features) {
            *feature = entry.map(FeatureView::parse).transpose()?;
        }
        Ok(features)
    }

    /// Every entry in the order of the bytes; a name that occurs twice is
    /// listed twice, and its last entry is the one that counts.
    pub fn entries(&self) -> Entries<'a> {
        Entries::new(self.bytes)
    }
}

/// The entries of an example, see [`ExampleView::entries`].
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    example: Fields<'a>,
    features: Fields<'a>,
    failed: bool,
}

impl<'a> Entries<'a> {
    fn new(example: &'a [u8]) -> Self {
        Self { example: Fields::new(example), features: Fields::default(), failed: false }
    }

    /// The bytes of the next map entry.
    #[inline]
    fn next_entry(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        loop {
            if let Some(entry) = self.features.next_bytes(1)? {
                return Ok(Some(entry));
            }
            match self.example.next_bytes(1)? {
                Some(features) => self.features = Fields::new(features),
                None => return Ok(None),
            }
        }
    }

    fn next_pair(&mut self) -> Result<Option<(&'a str, FeatureView<'a>)>, Malformed> {
        let Some(entry) = self.next_entry()? else { return Ok(None) };
        let name = std::str::from_utf8(entry_key(entry)?).map_err(|_| Malformed::Name)?;
        Ok(Some((name, FeatureView::parse(entry)?)))
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<(&'a str, FeatureView<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let item = self.next_pair().transpose();
        self.failed = matches!(item, Some(Err(_)));
        item
    }
}

/// The name in a map entry; an absent one is the empty name.
#[inline]
fn entry_key(entry: &[u8]) -> Result<&[u8], Malformed> {
    let mut fields = Fields::new(entry);
    let mut key: &[u8] = &[];
    while let Some(bytes) = fields.next_bytes(1)? {
        key = bytes;
    }
    Ok(key)
}

/// One feature, its lists checked: the iterators cannot fail.
#[derive(Debug, Clone, Copy)]
pub struct FeatureView<'a> {
    kind: FeatureKind,
    lists: Lists<'a>,
    len: usize,
}

impl<'a> FeatureView<'a> {
    fn parse(entry: &'a [u8]) -> Result<Self, Malformed> {
        let mut kind = FeatureKind::Unset;
        // Lists seen so far, and how many of them came before the last change of kind.
        let (mut seen, mut replaced) = (0usize, 0usize);
        let mut last: &[u8] = &[];
        let mut fields = Fields::new(entry);
        while let Some(value) = fields.next_bytes(2)? {
            let mut feature = Fields::new(value);
            while let Some(field) = feature.next()? {
                let Some(this) = list_kind(field.number) else { continue };
                last = field.bytes()?;
                if this != kind {
                    (kind, replaced) = (this, seen);
                }
                seen += 1;
            }
        }
        let lists = match seen - replaced {
            0 => Lists::Done,
            1 => Lists::One(last),
            _ => Lists::Joined {
                entry: Fields::new(entry),
                feature: Fields::default(),
                skip: replaced,
            },
        };
        let mut len = 0;
        for list in lists {
            len += check_list(kind, list)?;
        }
        Ok(Self { kind, lists, len })
    }

    /// What the feature holds.
    pub fn kind(&self) -> FeatureKind {
        self.kind
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The byte strings; none if the feature holds something else.
    pub fn bytes(&self) -> BytesValues<'a> {
        BytesValues { lists: self.lists_if(FeatureKind::Bytes), fields: Fields::default() }
    }

    /// The floats; none if the feature holds something else.
    pub fn floats(&self) -> FloatValues<'a> {
        FloatValues(Numbers::new(self.lists_if(FeatureKind::Float)))
    }

    /// The integers; none if the feature holds something else.
    pub fn ints(&self) -> IntValues<'a> {
        IntValues(Numbers::new(self.lists_if(FeatureKind::Int64)))
    }

    /// The first byte string: an image, a text, a file name.
    pub fn first_bytes(&self) -> Option<&'a [u8]> {
        self.bytes().next()
    }

    /// The first integer: a label, a width.
    pub fn first_int(&self) -> Option<i64> {
        self.ints().next()
    }

    /// All floats as one block of little-endian bytes, if they are stored as
    /// one: the way TensorFlow writes them, and the quick way to copy many.
    pub fn float_block(&self) -> Option<&'a [u8]> {
        let mut lists = self.lists_if(FeatureKind::Float);
        let mut fields = Fields::new(lists.next()?);
        let block = fields.next_bytes(1).ok()??;
        (block.len() == 4 * self.len).then_some(block)
    }

    fn lists_if(&self, kind: FeatureKind) -> Lists<'a> {
        if self.kind == kind { self.lists } else { Lists::Done }
    }
}

fn list_kind(field: u32) -> Option<FeatureKind> {
    match field {
        1 => Some(FeatureKind::Bytes),
        2 => Some(FeatureKind::Float),
        3 => Some(FeatureKind::Int64),
        _ => None,
    }
}

/// Checks the values of one list message and counts them.
fn check_list(kind: FeatureKind, list: &[u8]) -> Result<usize, Malformed> {
    let mut fields = Fields::new(list);
    let mut count = 0;
    while let Some(field) = fields.next()? {
        if field.number != 1 {
            continue;
        }
        count += match (kind, field.value) {
            (FeatureKind::Bytes, Value::Bytes(_))
            | (FeatureKind::Float, Value::Fixed32(_))
            | (FeatureKind::Int64, Value::Varint(_)) => 1,
            (FeatureKind::Float, Value::Bytes(packed)) => {
                if packed.len() % 4 != 0 {
                    return Err(Malformed::PackedFloats { bytes: packed.len() });
                }
                packed.len() / 4
            }
            (FeatureKind::Int64, Value::Bytes(mut packed)) => {
                let mut values = 0;
                while !packed.is_empty() {
                    take_varint(&mut packed).ok_or(Malformed::Varint)?;
                    values += 1;
                }
                values
            }
            _ => return Err(Malformed::WireType { field: 1 }),
        };
    }
    Ok(count)
}

/// The list messages that make up a feature: one, unless someone split it.
#[derive(Debug, Clone, Copy)]
enum Lists<'a> {
    Done,
    One(&'a [u8]),
    Joined { entry: Fields<'a>, feature: Fields<'a>, skip: usize },
}

impl<'a> Iterator for Lists<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        match self {
            Self::Done => None,
            Self::One(list) => {
                let list = *list;
                *self = Self::Done;
                Some(list)
            }
            // `FeatureView::parse` has walked the same bytes: errors cannot occur, and would end the walk.
            Self::Joined { entry, feature, skip } => loop {
                while let Ok(Some(field)) = feature.next() {
                    if list_kind(field.number).is_none() {
                        continue;
                    }
                    if *skip == 0 {
                        return field.bytes().ok();
                    }
                    *skip -= 1;
                }
                *feature = Fields::new(entry.next_bytes(2).ok()??);
            },
        }
    }
}

/// Iterates over byte strings.
#[derive(Debug, Clone)]
pub struct BytesValues<'a> {
    lists: Lists<'a>,
    fields: Fields<'a>,
}

impl<'a> Iterator for BytesValues<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            if let Ok(Some(bytes)) = self.fields.next_bytes(1) {
                return Some(bytes);
            }
            self.fields = Fields::new(self.lists.next()?);
        }
    }
}

/// The numbers of one kind of list: alone in a field each, or packed into one.
#[derive(Debug, Clone)]
struct Numbers<'a> {
    lists: Lists<'a>,
    fields: Fields<'a>,
    /// What is left of the packed ones found last.
    packed: &'a [u8],
}

impl<'a> Numbers<'a> {
    fn new(lists: Lists<'a>) -> Self {
        Self { lists, fields: Fields::default(), packed: &[] }
    }

    /// The next field of numbers; packed ones are then in `packed`.
    #[inline]
    fn next_field(&mut self) -> Option<Value<'a>> {
        loop {
            match self.fields.next() {
                Ok(Some(field)) if field.number == 1 => {
                    if let Value::Bytes(packed) = field.value {
                        self.packed = packed;
                    }
                    return Some(field.value);
                }
                Ok(Some(_)) => {}
                _ => self.fields = Fields::new(self.lists.next()?),
            }
        }
    }
}

/// Iterates over floats, packed or not.
#[derive(Debug, Clone)]
pub struct FloatValues<'a>(Numbers<'a>);

impl Iterator for FloatValues<'_> {
    type Item = f32;

    #[inline]
    fn next(&mut self) -> Option<f32> {
        loop {
            if let Some((value, rest)) = self.0.packed.split_first_chunk::<4>() {
                self.0.packed = rest;
                return Some(f32::from_le_bytes(*value));
            }
            if let Value::Fixed32(value) = self.0.next_field()? {
                return Some(f32::from_le_bytes(value));
            }
        }
    }
}

/// Iterates over integers, packed or not.
#[derive(Debug, Clone)]
pub struct IntValues<'a>(Numbers<'a>);

impl Iterator for IntValues<'_> {
    type Item = i64;

    #[inline]
    fn next(&mut self) -> Option<i64> {
        loop {
            if let Some(value) = take_varint(&mut self.0.packed) {
                return Some(value as i64);
            }
            if let Value::Varint(value) = self.0.next_field()? {
                return Some(value as i64);
            }
        }
    }
}
