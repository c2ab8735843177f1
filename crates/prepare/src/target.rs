//! Whether a folder may be prepared into. One that holds another data set is left alone: shards of two sets in one
//! folder could not be told apart afterwards.

use std::path::Path;

use crate::photos;
use paceline_data::{manifest::MANIFEST, rows::DESCRIPTION, sources};
use paceline_store::{Store, StoreError};

/// What is about to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writing {
    /// Records of photos.
    Photos,
    /// Records of rows.
    Rows,
}

/// The data set of another kind that a target holds, in words. What this kind of preparation left there itself is its
/// own affair.
pub(crate) fn occupant(dst: &dyn Store, writing: Writing) -> Result<Option<String>, StoreError> {
    let there = |key: &str| dst.size(key).map(|size| size.is_some());
    let (photos, begun) = (there(MANIFEST)?, there(&photos::plan_key())?);
    let rows = there(DESCRIPTION)?;
    let own = match writing {
        Writing::Photos if rows => return Ok(Some(format!("prepared rows (`{DESCRIPTION}`)"))),
        Writing::Rows if photos => return Ok(Some(format!("prepared photos (`{MANIFEST}`)"))),
        Writing::Rows if begun => {
            return Ok(Some("an unfinished preparation of photos".to_owned()));
        }
        Writing::Photos => photos || begun,
        Writing::Rows => rows,
    };
    if own {
        return Ok(None);
    }
    let location = dst.locate("");
    let holds = |entry: &&&sources::SourceKind| {
        // A folder around a photo folder (`data` around `data/flowers`) is not a data set itself.
        let photos = entry.name == sources::photos::ENTRY.name;
        (entry.recognises)(Path::new(&location)) && (!photos || sources::photos::has_classes(dst))
    };
    Ok(sources::ALL.iter().find(holds).map(|entry| entry.holds.to_owned()))
}
