//! What each data link between two tasks is for.
//!
//! Two tasks may hold several links at once. Each says in its handshake which channel it is, so that the side that
//! accepts hands it to the code that waits for it. All numbers are in this one list, so that no two uses get the same by chance.

use serde::{Deserialize, Serialize};

/// The use of a data link. Its number stands in the handshake and must not change between versions that talk to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
#[repr(u8)]
pub enum Channel {
    /// Between two workers of an all-reduce.
    AllReduce = 0,
    /// Between a worker and a parameter server.
    ParameterServer = 1,
    /// Between the chief and a parameter server of sparse weights: versions, copies, checkpoints.
    Oversight = 2,
    /// Weights on their way to the evaluator.
    Evaluator = 8,
    /// Between a parameter server and the chief: which version of the weights is served.
    Lineage = 9,
    /// Between the chief and a task that multiplies matrices: jobs one way, results the other.
    MatrixJobs = 10,
    /// Between two tasks that multiply matrices: blocks that one holds and the other needs.
    MatrixBlocks = 11,
    /// Measures round trip and bandwidth of one pair of tasks.
    PairTest = 30,
    /// Measures links that all tasks use at the same time: a ring, or sums over all workers.
    GroupTest = 31,
}

impl Channel {
    /// All channels, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::AllReduce,
        Self::ParameterServer,
        Self::Oversight,
        Self::Evaluator,
        Self::Lineage,
        Self::MatrixJobs,
        Self::MatrixBlocks,
        Self::PairTest,
        Self::GroupTest,
    ];
}

impl From<Channel> for u8 {
    fn from(channel: Channel) -> Self {
        channel as Self
    }
}

/// A number that does not stand for a channel of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("channel {0} is unknown to this version")]
pub struct UnknownChannel(u8);

impl TryFrom<u8> for Channel {
    type Error = UnknownChannel;

    fn try_from(number: u8) -> Result<Self, UnknownChannel> {
        let known = Self::ALL.into_iter().find(|channel| u8::from(*channel) == number);
        known.ok_or(UnknownChannel(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Purpose;

    /// Tasks of version 0.1 say these numbers but 10 and 11, which are new; another number for an old use needs another version in the
    /// preamble of the handshake.
    #[test]
    fn numbers_on_the_wire_are_those_of_version_0_1_and_the_new_ones() {
        let numbers = [0, 1, 2, 8, 9, 10, 11, 30, 31];
        assert_eq!(Channel::ALL.map(u8::from), numbers);
        for (channel, number) in Channel::ALL.into_iter().zip(numbers) {
            let purpose = Purpose::Data { generation: 3, channel };
            let text = format!(r#"{{"data":{{"generation":3,"channel":{number}}}}}"#);
            assert_eq!(serde_json::to_string(&purpose).unwrap(), text);
            assert_eq!(serde_json::from_str::<Purpose>(&text).unwrap(), purpose);
        }
    }

    #[test]
    fn a_number_without_a_channel_is_refused() {
        assert_eq!(Channel::try_from(7), Err(UnknownChannel(7)));
        let text = r#"{"data":{"generation":0,"channel":7}}"#;
        let error = serde_json::from_str::<Purpose>(text).unwrap_err().to_string();
        assert!(error.contains("channel 7"), "{error}");
    }
}
