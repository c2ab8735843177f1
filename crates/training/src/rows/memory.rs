//! How much memory the weights of a run on rows will take, before they take any.
//!
//! A weight and its optimiser's state are eight bytes, all of which are touched when a run begins. A server holds its
//! part; the chief gathers all of them whenever it saves.

use crate::{TrainError, memory::FILLED};
use paceline_data::rows::Hashing;
use paceline_models::sparse_logistic::Table;

/// Who holds weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Holder {
    /// A process that has all of them.
    Process,
    /// One of so many servers.
    Server { of: usize },
    /// All tasks of a run on one machine: the servers together, the chief, and the evaluator where there is one.
    Tasks { evaluator: bool },
}

impl Holder {
    /// Tables of all weights that it holds.
    fn tables(self) -> f64 {
        match self {
            Self::Process => 1.0,
            Self::Server { of } => 1.0 / of.max(1) as f64,
            Self::Tasks { evaluator } => 2.0 + f64::from(u8::from(evaluator)),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Process => "this process",
            Self::Server { .. } => "this server",
            Self::Tasks { .. } => "the tasks on this machine",
        }
    }

    /// Refuses more weights than fit into so many bytes.
    pub(crate) fn check(self, bits: u32, limit: f64) -> Result<(), TrainError> {
        let needs = |bits: u32| self.tables() * Table::bytes(bits) as f64;
        if needs(bits) <= limit {
            return Ok(());
        }
        Err(TrainError::RowsMemory {
            bits,
            holder: self.name(),
            needs: needs(bits),
            limit,
            fits: Hashing::BITS.rev().find(|&bits| needs(bits) <= FILLED * limit),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 16 GiB of slots were asked for without a look at the memory there is, and the process aborted.
    #[test]
    fn more_weights_than_memory_holds_are_refused_with_the_bits_that_fit() {
        let error = Holder::Process.check(31, 8e9).unwrap_err();
        let TrainError::RowsMemory { bits: 31, needs, fits, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((*needs, *fits), (17_179_869_192.0, Some(29)));
        assert!(error.is_usage());
        let said = error.to_string();
        assert!(said.contains("2^31 weights") && said.contains("17.2 GB"), "{said}");
        Holder::Process.check(29, 8e9).unwrap();
        Holder::Process.check(31, 20e9).unwrap();
        // Each of four servers holds a quarter, the chief's copy comes on top where all are on one machine.
        Holder::Server { of: 4 }.check(31, 8e9).unwrap();
        assert!(Holder::Server { of: 2 }.check(31, 8e9).is_err());
        let together = Holder::Tasks { evaluator: false };
        together.check(28, 8e9).unwrap();
        assert!(Holder::Tasks { evaluator: true }.check(29, 9e9).is_err());
        let TrainError::RowsMemory { fits, .. } = together.check(31, 8e9).unwrap_err() else {
            panic!()
        };
        assert_eq!(fits, Some(28));
        let nothing = Holder::Process.check(3, 10.0).unwrap_err();
        assert!(matches!(nothing, TrainError::RowsMemory { fits: None, .. }), "{nothing}");
    }
}
