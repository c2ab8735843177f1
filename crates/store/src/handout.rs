//! Work that others do: handed out as lines of text, each result taken exactly once.
//!
//! An engine such as Spark carries lines to machines and starts a process there for some of them. It repeats work as it
//! likes: a task that failed is tried again, a slow one is started twice, one that was given up may still be running.
//! So that each thing is done once all the same, whatever is handed out keeps these rules:
//!
//! - A line says everything. A heading comes first, the same for all; an item needs nothing but the heading and its line.
//! - A result is there whole or not at all, under a name that follows from its item, and the first attempt to put it
//!   there wins ([`Attempt::publish`], [`Attempt::publish_folder`]). A later attempt finds it and does nothing.
//! - Results are kept from one hand-out to the next; what an interrupted attempt left of an item is removed before the
//!   item is handed out again.
//! - Each hand-out has a *ticket*, an object that is there while the work is wanted. An attempt that does not find the
//!   ticket of its heading has outlived its job: it ends and leaves no trace.
//! - Both sides are the same version of the program.
//!
//! ```
//! use paceline_store::{LocalStore, Store, handout::{Handout, HandoutError, Work}};
//!
//! const SQUARES: Handout = Handout { ticket: ".ticket", sign: "job.json" };
//! let scratch = tempfile::tempdir()?;
//! let store = LocalStore::new(scratch.path());
//! store.write("job.json", b"{}")?;
//! let lines = SQUARES.hand_out(&store, &"squares", [2, 3], |_| Ok::<_, HandoutError>(()))?;
//!
//! // Somewhere else, as often as the engine likes:
//! for _ in 0..2 {
//!     let work: Work<String, u64> = Work::read(&mut lines.join("\n").as_bytes())?;
//!     let attempt = SQUARES.enter(&store, work.ticket())?;
//!     let key = |number: &u64| format!("results/{number}.json");
//!     attempt.each(
//!         work.items(),
//!         |number| Ok::<_, HandoutError>(attempt.result::<u64>(&key(number))?.is_some()),
//!         |number| attempt.publish(&key(number), &(number * number)).map(Some),
//!     )?;
//! }
//! assert_eq!(store.read("results/3.json", 9)?, b"9");
//! SQUARES.close(&store)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::{Store, StoreError, durable::AtomicFolder, fresh_token};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    collections::BTreeSet,
    io::{self, BufRead},
};

/// Version of the layout of lines. Both sides are the same program, so there is only one.
const VERSION: u32 = 2;
/// A ticket is 16 digits. Bytes.
const TICKET_LIMIT: u64 = 64;
/// Largest result that is read back. Bytes.
const RESULT_LIMIT: u64 = 1 << 30;

/// Why handed-out work could not be understood, begun or finished.
#[derive(Debug, thiserror::Error)]
pub enum HandoutError {
    /// A line that cannot be read, or is missing.
    #[error("line {line} of the work cannot be read")]
    Unreadable {
        /// From 1.
        line: usize,
        source: io::Error,
    },
    /// A line that is not what it should be.
    #[error("line {line} of the work cannot be understood")]
    Malformed {
        /// From 1.
        line: usize,
        /// What the parser said.
        source: serde_json::Error,
    },
    /// Work handed out by another version of the program.
    #[error("the work was handed out by {theirs}, this is {ours}")]
    Foreign {
        /// Program and version that handed it out.
        theirs: String,
        /// This program and its version.
        ours: String,
    },
    /// This machine does not see the place where results go.
    #[error("`{location}` is not there, seen from this machine")]
    Unseen { location: String },
    /// The job this work belongs to has ended, or was handed out again.
    #[error("the job in `{location}` that this work belongs to is over")]
    Over { location: String },
    /// A result that is there and cannot be understood.
    #[error("`{location}` is damaged")]
    Damaged {
        location: String,
        /// What the parser said.
        source: serde_json::Error,
    },
    /// The place failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A kind of work, by where it keeps its marks in the place where results go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handout {
    /// Key of the ticket.
    pub ticket: &'static str,
    /// Key of an object that is there from before the work is handed out until it is finished: a machine that does not
    /// see it looks at another place.
    pub sign: &'static str,
}

#[derive(Serialize, Deserialize)]
struct Envelope<H> {
    handout: u32,
    program: String,
    ticket: String,
    about: H,
}

/// Whose result is there in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// This attempt's.
    Made,
    /// That of another attempt, which was first.
    Outrun,
}

/// What an attempt did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Items whose results it made.
    pub made: u64,
    /// Items whose results another attempt had made, or made first.
    pub found: u64,
}

impl Handout {
    /// A heading, then one line for each item. Attempts of an earlier hand-out are shut out first; then `forget` removes
    /// what they left of each item.
    ///
    /// # Errors
    /// Those of `forget`, and a place that cannot be written.
    pub fn hand_out<H: Serialize, I: Serialize, E: From<HandoutError>>(
        &self,
        store: &dyn Store,
        heading: &H,
        items: impl IntoIterator<Item = I>,
        mut forget: impl FnMut(&I) -> Result<(), E>,
    ) -> Result<Vec<String>, E> {
        self.close(store)?;
        let mut lines = vec![String::new()];
        for item in items {
            forget(&item)?;
            lines.push(text(&item));
        }
        let ticket = format!("{:016x}", fresh_token());
        store.write(self.ticket, ticket.as_bytes()).map_err(HandoutError::from)?;
        let envelope = Envelope { handout: VERSION, program: program(), ticket, about: heading };
        lines[0] = text(&envelope);
        Ok(lines)
    }

    /// Shuts out every attempt: what is not there now will not come.
    ///
    /// # Errors
    /// A place that cannot be written.
    pub fn close(&self, store: &dyn Store) -> Result<(), HandoutError> {
        Ok(store.remove(self.ticket)?)
    }

    /// Names of the results in a folder of them.
    ///
    /// # Errors
    /// A folder that cannot be listed; one that is not there holds none.
    pub fn finished(
        &self,
        store: &dyn Store,
        folder: &str,
    ) -> Result<BTreeSet<String>, HandoutError> {
        match store.list(folder) {
            Ok(listing) => Ok(listing.files.into_iter().map(|file| file.name).collect()),
            Err(error) if error.is_missing() => Ok(BTreeSet::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Begins an attempt at work with that ticket.
    ///
    /// # Errors
    /// A machine that does not see the place, or work that is no longer wanted.
    pub fn enter<'a>(
        &self,
        store: &'a dyn Store,
        ticket: &'a str,
    ) -> Result<Attempt<'a>, HandoutError> {
        if store.size(self.sign)?.is_none() {
            return Err(HandoutError::Unseen { location: store.locate("") });
        }
        let attempt = Attempt { handout: *self, store, ticket };
        attempt.check()?;
        Ok(attempt)
    }
}

/// The result of an item, if it is there.
///
/// # Errors
/// One that is there and cannot be read.
pub fn result<R: DeserializeOwned>(
    store: &dyn Store,
    key: &str,
) -> Result<Option<R>, HandoutError> {
    if store.size(key)?.is_none() {
        return Ok(None);
    }
    let bytes = store.read(key, RESULT_LIMIT)?;
    let damaged = |source| HandoutError::Damaged { location: store.locate(key), source };
    serde_json::from_slice(&bytes).map(Some).map_err(damaged)
}

/// A heading and some of its items, as they arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct Work<H, I> {
    heading: H,
    ticket: String,
    items: Vec<I>,
}

impl<H: DeserializeOwned, I: DeserializeOwned> Work<H, I> {
    /// Reads a heading and any number of lines of [`Handout::hand_out`].
    ///
    /// # Errors
    /// Text that is not work of this program, named by its line.
    pub fn read(input: &mut dyn BufRead) -> Result<Self, HandoutError> {
        let mut lines = input.lines().enumerate().map(|(index, line)| {
            let line_number = index + 1;
            let unreadable = |source| HandoutError::Unreadable { line: line_number, source };
            Ok((line_number, line.map_err(unreadable)?))
        });
        let nothing = || HandoutError::Unreadable {
            line: 1,
            source: io::Error::new(io::ErrorKind::UnexpectedEof, "no heading"),
        };
        let malformed = |line| move |source| HandoutError::Malformed { line, source };
        let (_, first) = lines.next().unwrap_or_else(|| Err(nothing()))?;
        // The heading of another version may look otherwise; that it is another version must be told all the same.
        let envelope: Envelope<serde_json::Value> =
            serde_json::from_str(&first).map_err(malformed(1))?;
        if envelope.handout != VERSION || envelope.program != program() {
            return Err(HandoutError::Foreign { theirs: envelope.program, ours: program() });
        }
        let heading = serde_json::from_value(envelope.about).map_err(malformed(1))?;
        let items = lines.map(|line| {
            let (number, line) = line?;
            serde_json::from_str(&line).map_err(malformed(number))
        });
        Ok(Self { heading, ticket: envelope.ticket, items: items.collect::<Result<_, _>>()? })
    }
}

impl<H, I> Work<H, I> {
    /// What all items have in common.
    pub fn heading(&self) -> &H {
        &self.heading
    }

    /// What shows that the work is still wanted.
    pub fn ticket(&self) -> &str {
        &self.ticket
    }

    /// The items, in the order of their lines; the first is on line 2.
    pub fn items(&self) -> &[I] {
        &self.items
    }
}

/// One of possibly many processes at the same work.
#[derive(Debug)]
pub struct Attempt<'a> {
    handout: Handout,
    store: &'a dyn Store,
    ticket: &'a str,
}

impl Attempt<'_> {
    /// Whether the work is still wanted; to be asked before anything becomes visible.
    ///
    /// # Errors
    /// [`HandoutError::Over`] where it is not.
    pub fn check(&self) -> Result<(), HandoutError> {
        let over = || HandoutError::Over { location: self.store.locate("") };
        match self.store.read(self.handout.ticket, TICKET_LIMIT) {
            Ok(found) if found == self.ticket.as_bytes() => Ok(()),
            Ok(_) => Err(over()),
            Err(error) if error.is_missing() => Err(over()),
            Err(error) => Err(error.into()),
        }
    }

    /// The result of an item, if an attempt has made it.
    ///
    /// # Errors
    /// One that is there and cannot be read.
    pub fn result<R: DeserializeOwned>(&self, key: &str) -> Result<Option<R>, HandoutError> {
        result(self.store, key)
    }

    /// Puts a result there, unless another attempt has.
    ///
    /// # Errors
    /// Work that is no longer wanted, a place that cannot be written.
    pub fn publish(&self, key: &str, result: &impl Serialize) -> Result<Published, HandoutError> {
        self.check()?;
        let made = self.store.write_new(key, text(result).as_bytes())?;
        Ok(if made { Published::Made } else { Published::Outrun })
    }

    /// Puts a result that is a folder of this machine there, unless another attempt has.
    ///
    /// # Errors
    /// As of [`Attempt::publish`].
    pub fn publish_folder(&self, folder: AtomicFolder) -> Result<Published, HandoutError> {
        self.check()?;
        let location = folder.target().display().to_string();
        match folder.commit_new() {
            Ok(()) => Ok(Published::Made),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Published::Outrun),
            Err(source) => Err(StoreError::io("write", location, source).into()),
        }
    }

    /// Goes through items one by one: those that are `there` are passed over, the others `made`. Ends early where `made`
    /// returns nothing, because it was told to stop.
    ///
    /// # Errors
    /// Those of `there` and `made`.
    pub fn each<I, E>(
        &self,
        items: &[I],
        mut there: impl FnMut(&I) -> Result<bool, E>,
        mut made: impl FnMut(&I) -> Result<Option<Published>, E>,
    ) -> Result<Done, E> {
        let mut done = Done::default();
        for item in items {
            if there(item)? {
                done.found += 1;
                continue;
            }
            match made(item)? {
                Some(Published::Made) => done.made += 1,
                Some(Published::Outrun) => done.found += 1,
                None => break,
            }
        }
        Ok(done)
    }
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain structs with string keys become JSON")
}

/// Name and version of this program: both sides of a hand-out must be the same.
fn program() -> String {
    format!("paceline {}", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LocalStore;
    use std::fs;

    const HANDOUT: Handout = Handout { ticket: "notes/ticket", sign: "notes/plan" };

    fn place() -> (tempfile::TempDir, LocalStore) {
        let folder = tempfile::tempdir().unwrap();
        let store = LocalStore::new(folder.path());
        store.write(HANDOUT.sign, b"").unwrap();
        (folder, store)
    }

    fn hand_out(store: &LocalStore, items: &[u32]) -> Vec<String> {
        let forget = |item: &u32| Ok::<_, HandoutError>(store.remove(&format!("half-{item}"))?);
        HANDOUT.hand_out(store, &"about", items.iter().copied(), forget).unwrap()
    }

    fn read(lines: &[String]) -> Result<Work<String, u32>, HandoutError> {
        Work::read(&mut lines.join("\n").as_bytes())
    }

    #[test]
    fn of_many_attempts_at_once_each_item_is_made_by_one() {
        let (_folder, store) = place();
        let lines = hand_out(&store, &[1, 2, 3, 4, 5]);
        let attempt = || {
            let work = read(&lines).unwrap();
            let attempt = HANDOUT.enter(&store, work.ticket()).unwrap();
            let key = |item: &u32| format!("results/{item}.json");
            attempt
                .each::<_, HandoutError>(
                    work.items(),
                    |item| Ok(attempt.result::<u32>(&key(item))?.is_some()),
                    |item| attempt.publish(&key(item), &(item * item)).map(Some),
                )
                .unwrap()
        };
        let done: Vec<Done> = std::thread::scope(|scope| {
            let attempts: Vec<_> = (0..4).map(|_| scope.spawn(attempt)).collect();
            attempts.into_iter().map(|attempt| attempt.join().unwrap()).collect()
        });
        assert_eq!(done.iter().map(|done| done.made).sum::<u64>(), 5, "{done:?}");
        assert!(done.iter().all(|done| done.made + done.found == 5));
        assert_eq!(HANDOUT.finished(&store, "results").unwrap().len(), 5);
        assert_eq!(result::<u32>(&store, "results/3.json").unwrap(), Some(9));
        assert_eq!(result::<u32>(&store, "results/6.json").unwrap(), None);
    }

    #[test]
    fn an_attempt_that_outlives_its_job_leaves_no_trace() {
        let (folder, store) = place();
        store.write("half-1", b"").unwrap();
        let lines = hand_out(&store, &[1]);
        assert_eq!(store.size("half-1").unwrap(), None, "what was left of the item is gone");
        let old = read(&lines).unwrap();
        let attempt = HANDOUT.enter(&store, old.ticket()).unwrap();
        let cell = AtomicFolder::create(&folder.path().join("cell")).unwrap();
        fs::write(cell.path().join("row"), b"").unwrap();
        let again = hand_out(&store, &[1]);
        assert!(matches!(attempt.publish("results/1.json", &1), Err(HandoutError::Over { .. })));
        assert!(matches!(attempt.publish_folder(cell), Err(HandoutError::Over { .. })));
        let refused = HANDOUT.enter(&store, old.ticket()).unwrap_err();
        assert!(matches!(refused, HandoutError::Over { .. }), "{refused}");
        let new = read(&again).unwrap();
        HANDOUT.enter(&store, new.ticket()).unwrap();
        HANDOUT.close(&store).unwrap();
        assert!(matches!(HANDOUT.enter(&store, new.ticket()), Err(HandoutError::Over { .. })));
        store.remove(HANDOUT.sign).unwrap();
        assert!(matches!(HANDOUT.enter(&store, new.ticket()), Err(HandoutError::Unseen { .. })));
        assert_eq!(store.list("").unwrap().files, []);
        assert!(!folder.path().join("results").exists() && !folder.path().join("cell").exists());
    }

    #[test]
    fn text_of_others_is_named_by_its_line() {
        let (_folder, store) = place();
        let lines = hand_out(&store, &[1, 2]);
        let refused = |lines: &[String]| read(lines).unwrap_err();
        assert!(matches!(refused(&[]), HandoutError::Unreadable { line: 1, .. }));
        assert!(matches!(refused(&["{}".into()]), HandoutError::Malformed { line: 1, .. }));
        let cut = [lines[0].clone(), lines[1].clone(), "\"".into()];
        assert!(matches!(refused(&cut), HandoutError::Malformed { line: 3, .. }));
        // Another version is told by name even where its heading is another one.
        let foreign = lines[0].replace("paceline 0", "paceline 99").replace("\"about\"", "7");
        let foreign = foreign.replace("7:", "\"about\":");
        let said = refused(&[foreign]).to_string();
        assert!(said.contains("handed out by paceline 99"), "{said}");
        store.write("results/1.json", b"{").unwrap();
        let damaged = result::<u32>(&store, "results/1.json");
        assert!(matches!(damaged, Err(HandoutError::Damaged { .. })));
    }
}
