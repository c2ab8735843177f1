//! Which task of which cluster this process is, in words.

use super::Terminal;
use paceline_jobs::TaskPlacement;
use paceline_wire::Security;

impl Terminal {
    /// Says which description wins and what follows.
    pub fn tell_placement(&self, placement: &TaskPlacement) {
        self.note(placement_words(placement));
    }

    /// Says aloud what `--insecure` means, where it was given.
    pub fn warn_of_insecure(&self, insecure: bool) {
        if insecure {
            self.warn("--insecure: anyone on the network can read this run and take part in it");
        }
    }
}

/// Which description wins and what follows, in a line.
fn placement_words(placement: &TaskPlacement) -> String {
    let security = match placement.security {
        Security::Tls => "encrypted",
        Security::Plain => "not encrypted",
    };
    format!(
        "{} of {} tasks, as {} says; meeting at {}, {security}",
        placement.own,
        placement.tasks.len(),
        placement.origin,
        placement.chief_address
    )
}
