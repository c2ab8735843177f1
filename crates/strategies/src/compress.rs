//! Sums of compressed gradients.
//!
//! Each worker adds up one part of the gradient. All send it that part, compressed; it compresses the sum and sends it to all.
//! So as many values travel as in an uncompressed sum, each in fewer bytes, and every worker ends with the same bits. What
//! either compression leaves out is kept where it was made and added to the next step's values (error feedback): it comes
//! later, but it comes.

mod codec;

use crate::Compression;
use paceline_wire::{LinkError, Wait, collective::Group};
use std::ops::Range;

/// One worker's side, with what it has not said yet.
#[derive(Debug)]
pub(crate) struct Compressed {
    how: Compression,
    /// Left out of the own gradients so far.
    gradient: Vec<f32>,
    /// Left out of the sums of the own part so far.
    sum: Vec<f32>,
    words: Vec<u32>,
    received: Vec<u32>,
}

impl Compressed {
    pub(crate) fn new(how: Compression) -> Self {
        let (gradient, sum) = (Vec::new(), Vec::new());
        Self { how, gradient, sum, words: Vec::new(), received: Vec::new() }
    }

    /// Replaces `grad` by the sum over all workers, as far as it is told in this step.
    pub(crate) fn sum(
        &mut self,
        group: &mut Group,
        grad: &mut [f32],
        wait: &Wait<'_>,
    ) -> Result<(), LinkError> {
        let Self { how, gradient, sum, words, received } = self;
        let (how, rank, size, length) = (*how, group.rank(), group.size(), grad.len());
        let part = |of: usize| of * length / size..(of + 1) * length / size;
        let words_of = |of: usize| codec::words(how, part(of).len());
        let own = part(rank);
        gradient.resize(length, 0.0);
        sum.resize(own.len(), 0.0);
        gradient.iter_mut().zip(&*grad).for_each(|(rest, value)| *rest += value);
        let lengths: Vec<usize> = (0..size).map(words_of).collect();
        words.resize(lengths.iter().sum(), 0);
        for (of, place) in places(&lengths) {
            codec::encode(how, &mut gradient[part(of)], &mut words[place]);
        }
        received.resize(size * lengths[rank], 0);
        group.all_to_all(words, &lengths, received, wait)?;
        // In the order of the ranks: the same bits every time.
        for one in received.chunks(lengths[rank].max(1)) {
            codec::add_decoded(how, one, sum);
        }
        let mine = places(&lengths).nth(rank).map_or(0..0, |(_, place)| place);
        codec::encode(how, sum, &mut words[mine]);
        group.all_gather(words, &lengths, wait)?;
        grad.fill(0.0);
        for (of, place) in places(&lengths) {
            codec::add_decoded(how, &words[place], &mut grad[part(of)]);
        }
        Ok(())
    }
}

/// Where the words of each part lie.
fn places(lengths: &[usize]) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
    let mut start = 0;
    lengths.iter().enumerate().map(move |(of, length)| {
        start += length;
        (of, start - length..start)
    })
}
