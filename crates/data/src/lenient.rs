//! Sets of photos with some bad ones among them: these are left out and listed, and the rest is read as usual.

use std::sync::Arc;

use paceline_batch::Schema;
use paceline_photo::Fit;
use sha2::Sha256;

use crate::{
    DataError, Scratch, Source,
    rejects::{Reject, RejectLimit, RejectLog},
};

/// What takes the place of an example that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instead {
    /// Nothing: batches become smaller.
    Nothing,
    /// The next example that can be used. It follows from the data alone, so that order, batch sizes and weights stay the same
    /// on every run and for any number of workers, each of which sees only its share.
    Next,
}

/// A source that leaves out what cannot be used.
#[derive(Debug)]
pub struct Lenient {
    inner: Arc<dyn Source>,
    log: Arc<RejectLog>,
    instead: Instead,
}

impl Lenient {
    /// Reads `inner`, noting in `log` what is left out. Sources that reject nothing are returned as they are.
    #[must_use]
    pub fn around(
        inner: Arc<dyn Source>,
        log: &Arc<RejectLog>,
        instead: Instead,
    ) -> Arc<dyn Source> {
        if !inner.may_reject() {
            return inner;
        }
        Arc::new(Self { inner, log: Arc::clone(log), instead })
    }
}

/// A log for everything read from `sources`, of one folder; what could not even be tried is in it from the start.
///
/// # Errors
/// More of those than `limit` allows.
pub fn log_of(
    sources: &[&dyn Source],
    limit: Option<RejectLimit>,
) -> Result<Arc<RejectLog>, DataError> {
    let rejects = sources.first().map_or(&[][..], |source| source.rejects());
    let photos = sources.iter().map(|source| source.len()).sum::<u64>() + rejects.len() as u64;
    let log = RejectLog::new(limit.map(|limit| limit.count(photos)));
    for reject in rejects {
        log.note(reject.clone())?;
    }
    Ok(Arc::new(log))
}

impl Source for Lenient {
    fn schema(&self) -> &Schema {
        self.inner.schema()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, index: u64, scratch: &mut Scratch, pixels: &mut [u8]) -> Result<u32, DataError> {
        let photos = self.inner.len();
        let mut at = index;
        loop {
            let error = match self.inner.read(at, scratch, pixels) {
                Err(error) if self.instead == Instead::Next => error,
                done => return done,
            };
            let last = error.to_string();
            self.leave_out(at, error)?;
            at = (at + 1) % photos;
            if at == index {
                return Err(DataError::AllRejected { photos, last });
            }
        }
    }

    fn leave_out(&self, index: u64, error: DataError) -> Result<(), DataError> {
        match self.inner.fault(index, &error) {
            Some(reject) => self.log.note(reject),
            None => Err(error),
        }
    }

    fn label(&self, index: u64, scratch: &mut Scratch) -> Result<u32, DataError> {
        self.inner.label(index, scratch)
    }

    fn resident(&self) -> bool {
        self.inner.resident()
    }

    fn distant(&self) -> bool {
        self.inner.distant()
    }

    fn origin(&self, index: u64) -> String {
        self.inner.origin(index)
    }

    fn fit(&self) -> Fit {
        self.inner.fit()
    }

    fn remarks(&self) -> Vec<String> {
        self.inner.remarks()
    }

    fn rejects(&self) -> &[Reject] {
        self.inner.rejects()
    }

    fn may_reject(&self) -> bool {
        true
    }

    fn fault(&self, index: u64, error: &DataError) -> Option<Reject> {
        self.inner.fault(index, error)
    }

    fn identify(&self, sum: &mut Sha256) -> Result<(), DataError> {
        self.inner.identify(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Loader, LoaderOptions, OpenOptions, open, order::Shuffle};
    use paceline_prepare::synth;

    /// Photos of which two are bad.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let options = synth::PhotosOptions { per_class: 4, bad: 2, ..Default::default() };
        synth::write_photos(folder.path(), &options, &|_| ()).unwrap();
        folder
    }

    fn photos(folder: &tempfile::TempDir) -> Arc<dyn Source> {
        open(folder.path(), &OpenOptions { size: Some((8, 8)), ..OpenOptions::default() }).unwrap()
    }

    fn epoch(source: Arc<dyn Source>, threads: usize) -> Result<(u64, Vec<u8>), DataError> {
        let options = LoaderOptions {
            batch_size: 5,
            threads,
            shuffle: Shuffle::Full,
            epochs: Some(1),
            ..LoaderOptions::default()
        };
        let mut loader = Loader::new(source, options)?;
        let (mut examples, mut labels) = (0, Vec::new());
        while let Some(batch) = loader.next_batch()? {
            examples += batch.len() as u64;
            labels.extend(batch.labels.iter().map(|&label| label as u8));
        }
        Ok((examples, labels))
    }

    #[test]
    fn bad_photos_are_left_out_listed_once_and_replaced_alike_by_every_thread() {
        let folder = folder();
        let source = photos(&folder);
        let all = source.len();
        for instead in [Instead::Next, Instead::Nothing] {
            let log = log_of(&[&*source], None).unwrap();
            let lenient = Lenient::around(Arc::clone(&source), &log, instead);
            let one = epoch(Arc::clone(&lenient), 1).unwrap();
            assert_eq!(one, epoch(lenient, 3).unwrap());
            let left = if instead == Instead::Next { 0 } else { 2 };
            assert_eq!(one.0, all - left);
            let list = log.list();
            assert_eq!(list.len(), 2, "{list:?}");
            assert!(list.iter().all(|reject| reject.path.contains("/bad_")), "{list:?}");
        }
        assert!(epoch(source, 1).is_err(), "not lenient");
    }

    #[test]
    fn one_more_than_allowed_ends_it_with_the_reasons() {
        let folder = folder();
        let source = photos(&folder);
        for limit in [RejectLimit::Count(1), RejectLimit::Percent(5.0)] {
            let log = log_of(&[&*source], Some(limit)).unwrap();
            let lenient = Lenient::around(Arc::clone(&source), &log, Instead::Next);
            let message = epoch(lenient, 2).unwrap_err().to_string();
            assert!(message.contains("2 photos rejected, more than the 1 allowed"), "{message}");
        }
        let log = log_of(&[&*source], Some(RejectLimit::Count(2))).unwrap();
        assert!(epoch(Lenient::around(source, &log, Instead::Next), 2).is_ok());
    }
}
