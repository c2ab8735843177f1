//! Rows in parcels: read in order, one reader at a time, parsed by any thread that has time.

use crate::{TrainError, rows::Window};
use paceline_batch::Batch;
use paceline_data::rows::{
    Block, Format, Hashing, Input, Lines, Next, Parser, Position, Refused, detect, formats,
};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// A parcel is handed over when it is this full, whatever its window says. Bytes.
const FULL: usize = 256 << 10;
/// Rows that wait for a window by count may take this much. Bytes.
const MOST_WAITING: usize = 8 << 20;

/// A place in the data: which pass over it, and where in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowsPlace {
    /// Passes completed before.
    pub pass: u64,
    /// Where in the files.
    pub position: Position,
}

/// Some rows on their way from reading to learning. Reused, so that a run allocates nothing once it is
/// going.
#[derive(Debug, Default)]
pub(crate) struct Parcel {
    pub(crate) number: u64,
    pub(crate) block: Block,
    parser: Option<Parser>,
    /// Where the next parcel starts.
    pub(crate) end: RowsPlace,
    /// Not to be learned from before this, unless memory runs short.
    pub(crate) release: Option<Instant>,
    /// Bytes that waited behind it when it was read.
    pub(crate) behind: Option<u64>,
}

impl Parcel {
    /// Turns text into rows.
    pub(crate) fn parse(&mut self) {
        if let Some(parser) = &mut self.parser {
            parser.parse(&self.block.text);
        }
    }

    /// The rows.
    pub(crate) fn batch(&self) -> &Batch {
        &self.parser.as_ref().expect("a parcel that was read has a parser").batch
    }

    /// Malformed lines.
    pub(crate) fn refused(&self) -> &[Refused] {
        self.parser.as_ref().map_or(&[], |parser| &parser.refused)
    }
}

/// Reads parcels in order.
#[derive(Debug)]
pub struct Source {
    lines: Lines,
    format: Option<&'static Format>,
    hashing: Hashing,
    passes: u64,
    pass: u64,
    number: u64,
    window: Window,
    /// When the first window began.
    begun: Instant,
    /// What waits for its window to close.
    waiting: Block,
    spare: Block,
    ended: bool,
}

impl Source {
    /// Reads `input` from `from` on, `passes` times in all.
    ///
    /// # Errors
    /// An unknown format.
    pub fn open(
        input: Input,
        format: Option<&str>,
        hashing: Hashing,
        from: RowsPlace,
        passes: u64,
        window: Window,
    ) -> Result<Self, TrainError> {
        let format = format.map(formats::find).transpose()?;
        // Files are there at once: a span of time means nothing for them.
        let window = match window {
            Window::Seconds(_) if !input.is_live() => Window::None,
            other => other,
        };
        Ok(Self {
            lines: Lines::new(input, from.position),
            format,
            hashing,
            passes,
            pass: from.pass,
            number: 0,
            window,
            begun: Instant::now(),
            waiting: Block::default(),
            spare: Block::default(),
            ended: false,
        })
    }

    /// Reads the next parcel's text.
    pub(crate) fn next(&mut self, parcel: &mut Parcel) -> Result<Next, TrainError> {
        parcel.release = None;
        let next = match self.window {
            Window::None => self.read(&mut parcel.block)?,
            Window::Rows(_) | Window::Seconds(_) => self.windowed(parcel)?,
        };
        if next != Next::Block {
            return Ok(next);
        }
        let format = match self.format {
            Some(format) => format,
            None => {
                let path = self.lines.input().name(parcel.block.start.file);
                *self.format.insert(detect(&path, &parcel.block.text)?)
            }
        };
        if parcel.parser.is_none() {
            parcel.parser = Some(Parser::new(format, self.hashing));
        }
        parcel.number = self.number;
        self.number += 1;
        parcel.end = RowsPlace { pass: self.pass, position: parcel.block.end };
        parcel.behind = self.lines.behind();
        Ok(Next::Block)
    }

    /// The next block, of the next pass where one has ended.
    fn read(&mut self, block: &mut Block) -> Result<Next, TrainError> {
        loop {
            if self.pass >= self.passes {
                return Ok(Next::End);
            }
            match self.lines.next(block)? {
                Next::End => {
                    self.pass += 1;
                    let input = self.lines.input().clone();
                    if input.is_live() {
                        return Ok(Next::End);
                    }
                    self.lines = Lines::new(input, Position::default());
                }
                other => return Ok(other),
            }
        }
    }

    /// Collects lines until their window closes.
    fn windowed(&mut self, parcel: &mut Parcel) -> Result<Next, TrainError> {
        loop {
            if self.is_due() {
                parcel.release = self.closes();
                std::mem::swap(&mut parcel.block, &mut self.waiting);
                self.waiting.text.clear();
                self.waiting.too_long = None;
                return Ok(Next::Block);
            }
            if self.ended {
                return Ok(Next::End);
            }
            let mut spare = std::mem::take(&mut self.spare);
            let next = self.read(&mut spare);
            self.spare = spare;
            match next? {
                Next::Block if self.waiting.text.is_empty() => {
                    std::mem::swap(&mut self.waiting, &mut self.spare);
                }
                Next::Block
                    if self.waiting.end == self.spare.start && self.spare.too_long.is_none() =>
                {
                    // `arrived` stays that of the first: the delay told is the longest.
                    self.waiting.text.extend_from_slice(&self.spare.text);
                    self.waiting.end = self.spare.end;
                }
                Next::Block => {
                    // Another file: what waits goes first.
                    std::mem::swap(&mut parcel.block, &mut self.waiting);
                    std::mem::swap(&mut self.waiting, &mut self.spare);
                    return Ok(Next::Block);
                }
                Next::Idle if self.is_due() => {}
                Next::Idle => return Ok(Next::Idle),
                Next::End => self.ended = true,
            }
        }
    }

    /// Whether what waits is to be handed over.
    fn is_due(&self) -> bool {
        let waiting = self.waiting.text.len();
        if waiting == 0 {
            return self.waiting.too_long.is_some();
        }
        if self.ended {
            return true;
        }
        match self.window {
            Window::Rows(rows) => {
                let lines = || self.waiting.text.iter().filter(|&&byte| byte == b'\n').count();
                waiting >= MOST_WAITING || lines() as u64 >= rows
            }
            _ => waiting >= FULL || self.closes().is_none_or(|end| Instant::now() >= end),
        }
    }

    /// When the window of what waits closes.
    fn closes(&self) -> Option<Instant> {
        let Window::Seconds(span) = self.window else { return None };
        if self.ended {
            return None;
        }
        let since = self.waiting.arrived.duration_since(self.begun).as_secs_f64();
        let end = (since / span).floor() * span + span;
        Duration::try_from_secs_f64(end).ok().and_then(|end| self.begun.checked_add(end))
    }
}
