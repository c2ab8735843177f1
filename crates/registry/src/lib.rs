//! Lists of alternatives that programs can add to.
//!
//! Models, strategies, sources, advisors, probes and launchers are chosen by name or recognised by what is there. Each kind
//! has one [`Registry`], from which lists, help texts, messages and tests are made, so that an alternative is one file and
//! one line. In this repository the line stands in the list itself; a program that uses the crates as libraries writes
//! [`Registry::add`] instead, and needs no copy of them.
//!
//! ```
//! use paceline_registry::{Named, Registry};
//!
//! struct Greeting {
//!     name: &'static str,
//!     text: &'static str,
//! }
//!
//! impl Named for Greeting {
//!     fn name(&self) -> &'static str {
//!         self.name
//!     }
//! }
//!
//! static ALL: Registry<Greeting> = Registry::new(&[&Greeting { name: "plain", text: "hello" }]);
//!
//! static OURS: Greeting = Greeting { name: "formal", text: "good day" };
//! ALL.add(&OURS)?;
//! assert_eq!(ALL.named("formal").map(|greeting| greeting.text), Some("good day"));
//! assert_eq!(ALL.iter().map(|greeting| greeting.name).collect::<Vec<_>>(), ["plain", "formal"]);
//! assert!(ALL.add(&OURS).is_err(), "names are unique");
//! # Ok::<(), paceline_registry::NameTaken>(())
//! ```

use std::{
    fmt,
    ops::Deref,
    sync::{PoisonError, RwLock},
};

/// What a registry holds.
pub trait Named: Sync {
    /// The name it is listed and found by.
    fn name(&self) -> &'static str;
}

/// All alternatives of one kind, in the order of lists. Derefs to a slice of those that are there at the moment.
pub struct Registry<T: 'static> {
    own: &'static [&'static T],
    /// With what was added; nothing before the first.
    grown: RwLock<Option<&'static [&'static T]>>,
}

/// An alternative of that name exists.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there already is a `{name}`")]
pub struct NameTaken {
    pub name: &'static str,
}

impl<T: Named> Registry<T> {
    /// A registry of these.
    #[must_use]
    pub const fn new(own: &'static [&'static T]) -> Self {
        Self { own, grown: RwLock::new(None) }
    }

    /// Adds one at the end, for the rest of the process.
    ///
    /// # Errors
    /// [`NameTaken`] if there is one of its name.
    pub fn add(&self, entry: &'static T) -> Result<(), NameTaken> {
        let mut grown = self.grown.write().unwrap_or_else(PoisonError::into_inner);
        let before = grown.unwrap_or(self.own);
        if before.iter().any(|known| known.name() == entry.name()) {
            return Err(NameTaken { name: entry.name() });
        }
        let mut all = before.to_vec();
        all.push(entry);
        // Slices that were handed out stay valid; a process adds a handful.
        *grown = Some(Vec::leak(all));
        Ok(())
    }

    /// The one of that name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&'static T> {
        self.slice().iter().copied().find(|entry| entry.name() == name)
    }
}

impl<T> Registry<T> {
    fn slice(&self) -> &'static [&'static T] {
        self.grown.read().unwrap_or_else(PoisonError::into_inner).unwrap_or(self.own)
    }
}

impl<T> Deref for Registry<T> {
    type Target = [&'static T];

    fn deref(&self) -> &[&'static T] {
        self.slice()
    }
}

impl<'a, T> IntoIterator for &'a Registry<T> {
    type Item = &'a &'static T;
    type IntoIter = std::slice::Iter<'a, &'static T>;

    fn into_iter(self) -> Self::IntoIter {
        self.slice().iter()
    }
}

impl<T: Named> fmt::Debug for Registry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.slice().iter().map(|entry| entry.name())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Letter(&'static str);

    impl Named for Letter {
        fn name(&self) -> &'static str {
            self.0
        }
    }

    #[test]
    fn what_is_added_comes_last_and_earlier_slices_stay() {
        static ALL: Registry<Letter> = Registry::new(&[&Letter("a"), &Letter("b")]);
        static C: Letter = Letter("c");
        let before: &'static [&'static Letter] = ALL.deref();
        ALL.add(&C).unwrap();
        assert_eq!(format!("{ALL:?}"), r#"["a", "b", "c"]"#);
        assert_eq!((before.len(), ALL.len()), (2, 3));
        assert_eq!((&ALL).into_iter().count(), 3);
    }

    #[test]
    fn a_second_one_of_a_name_is_refused() {
        static ALL: Registry<Letter> = Registry::new(&[&Letter("a")]);
        static AGAIN: Letter = Letter("a");
        let error = ALL.add(&AGAIN).unwrap_err();
        assert_eq!(error.to_string(), "there already is a `a`");
        assert_eq!(ALL.len(), 1);
        assert!(ALL.named("b").is_none());
    }
}
