//! Cables of hosts, and the messages on them.
//!
//! Messages that travel at the same time share a cable, as TCP flows do: none comes first because it began
//! first. On average they share evenly, at any moment they do not, since their windows differ; so every
//! message has a weight of its own. Both matter. Taking turns would let one worker receive while another one sends,
//! which looks faster than a real network: three workers on one server get two thirds of what turns would give
//! them. With even shares, workers that began together would stay together for ever, whereas two real ones drift
//! apart within three steps. How uneven the weights are hardly matters.
//!
//! A message lies on two cables, its sender's outward and its receiver's inward, and is there when it has come
//! through both.

use super::due::Due;
use std::collections::BinaryHeap;

/// What a message asks of a cable.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Parcel {
    /// Seconds of the cable alone.
    pub(super) seconds: f64,
    /// Its share of the cable is this over the weights of all messages there.
    pub(super) weight: f64,
}

/// One direction of a host's cable. Its clock shows the seconds of the whole cable that a message of weight one on it
/// has had so far: it runs at one over the sum of the weights, so neither a new message nor a finished one changes
/// what is known of the others.
#[derive(Debug, Clone, Default)]
pub(super) struct Cable {
    /// Messages with their weights: when the cable's own clock shows a message's time, it is through.
    shares: BinaryHeap<Due<f64>>,
    /// Of all messages on it.
    weights: f64,
    clock: f64,
    /// When the clock was set.
    at: f64,
    /// Seconds with something on it.
    pub(super) busy: f64,
    /// When this cable is checked next.
    look: Option<f64>,
}

/// Seconds that count as none: clocks are floating point.
const HAIR: f64 = 1e-9;

impl Cable {
    fn advance(&mut self, now: f64) {
        let passed = now - self.at;
        if self.shares.is_empty() {
            // Small numbers keep their digits.
            (self.clock, self.weights) = (0.0, 0.0);
        } else {
            self.clock += passed / self.weights;
            self.busy += passed;
        }
        self.at = now;
    }

    /// Puts a message on the cable. Answers when to look again, if that is earlier than agreed.
    pub(super) fn put(&mut self, now: f64, message: usize, parcel: Parcel) -> Option<f64> {
        self.advance(now);
        let Parcel { seconds, weight } = parcel;
        self.weights += weight;
        let end = self.clock + seconds / weight;
        self.shares.push(Due { at: end, number: message as u64, what: weight });
        self.agree()
    }

    /// Takes a message that is through, if one is; else answers when to look again.
    pub(super) fn take(&mut self, now: f64) -> Result<usize, Option<f64>> {
        self.advance(now);
        self.look = None;
        match self.shares.peek() {
            Some(first) if first.at <= self.clock + HAIR => {
                let Due { what: weight, number, .. } = *first;
                self.shares.pop();
                self.weights -= weight;
                Ok(number as usize)
            }
            _ => Err(self.agree()),
        }
    }

    /// Whether this is the look that was agreed on last: a message put since then may have asked for an earlier one.
    pub(super) fn is_due(&self, now: f64) -> bool {
        self.look == Some(now)
    }

    fn agree(&mut self) -> Option<f64> {
        let first = self.shares.peek()?;
        let left = (first.at - self.clock).max(0.0) * self.weights;
        let at = (self.at + left).max(self.at.next_up());
        if self.look.is_none_or(|look| at < look) {
            self.look = Some(at);
            return Some(at);
        }
        None
    }
}

/// How long messages of `seconds` each take that are put on a free cable together, by their weights: what looking at the
/// cable whenever one is through would find.
pub(super) fn together<const N: usize>(seconds: f64, weights: &[f64]) -> [f64; N] {
    let mut order: [usize; N] = std::array::from_fn(|at| at);
    let order = &mut order[..weights.len()];
    // The heaviest is through first.
    order.sort_unstable_by(|&a, &b| weights[b].total_cmp(&weights[a]));
    let mut left: f64 = weights.iter().sum();
    let (mut passed, mut clock) = (0.0, 0.0);
    let mut ends = [0.0; N];
    for &mut at in order {
        let end = seconds / weights[at];
        passed += (end - clock) * left;
        (clock, ends[at]) = (end, passed);
        left -= weights[at];
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When messages are through that begin at given times and take given seconds alone, all of equal weight.
    fn ends(messages: &[(f64, f64)]) -> Vec<f64> {
        let even = |&(begins, seconds)| (begins, Parcel { seconds, weight: 1.0 });
        ends_of(&messages.iter().map(even).collect::<Vec<_>>())
    }

    fn ends_of(messages: &[(f64, Parcel)]) -> Vec<f64> {
        let mut cable = Cable::default();
        let mut ends = vec![f64::NAN; messages.len()];
        let mut next = 0;
        let mut look: Option<f64> = None;
        loop {
            let begins = messages.get(next).map(|message| message.0);
            let now = match (begins, look) {
                (Some(begins), Some(at)) if begins <= at => begins,
                (Some(begins), None) => begins,
                (_, Some(at)) => at,
                (None, None) => return ends,
            };
            if begins == Some(now) {
                look = cable.put(now, next, messages[next].1).or(look);
                next += 1;
                continue;
            }
            look = loop {
                match cable.take(now) {
                    Ok(through) => ends[through] = now,
                    Err(at) => break at,
                }
            };
        }
    }

    #[track_caller]
    fn near(found: &[f64], wanted: &[f64]) {
        let close = found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(close && found.len() == wanted.len(), "{found:?} is not {wanted:?}");
    }

    #[test]
    fn lone_message_has_the_whole_cable() {
        near(&ends(&[(0.0, 2.0), (5.0, 1.0)]), &[2.0, 6.0]);
    }

    #[test]
    fn messages_that_begin_together_end_together() {
        near(&ends(&[(0.0, 2.0), (0.0, 2.0), (0.0, 2.0)]), &[6.0, 6.0, 6.0]);
        near(&ends(&[(0.0, 1.0), (0.0, 3.0)]), &[2.0, 4.0]);
    }

    #[test]
    fn later_message_slows_an_earlier_one_and_keeps_its_distance() {
        // One alone for a second, then both at half: the first ends at 3, the second has one left.
        near(&ends(&[(0.0, 2.0), (1.0, 2.0)]), &[3.0, 4.0]);
    }

    #[test]
    fn heavier_message_gets_the_larger_share() {
        // Three quarters and one quarter: the heavy one ends at 4/3, the light one has two thirds left.
        let parcel = |weight| (0.0, Parcel { seconds: 1.0, weight });
        near(&ends_of(&[parcel(1.5), parcel(0.5)]), &[4.0 / 3.0, 2.0]);
    }

    #[test]
    fn messages_put_together_end_as_if_they_were_looked_at() {
        let weights = [0.7, 1.4, 0.9];
        let parcels = weights.map(|weight| (0.0, Parcel { seconds: 2.0, weight }));
        near(&together::<4>(2.0, &weights)[..3], &ends_of(&parcels));
        near(&together::<4>(2.0, &[1.3])[..1], &[2.0]);
    }

    #[test]
    fn cable_is_never_busier_than_the_time() {
        let mut cable = Cable::default();
        let parcel = Parcel { seconds: 2.0, weight: 0.7 };
        cable.put(1.0, 0, parcel);
        cable.put(2.0, 1, parcel);
        assert_eq!(cable.take(4.0), Ok(0));
        assert_eq!(cable.take(5.0), Ok(1));
        assert_eq!(cable.take(9.0), Err(None));
        assert!((cable.busy - 4.0).abs() < 1e-9, "{}", cable.busy);
    }
}
