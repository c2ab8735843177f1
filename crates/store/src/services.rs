//! The object stores there are. Adding one is one file with an `ENTRY`, and one line in [`ALL`].

mod azure;
mod gcs;
mod s3;
mod web;

use std::{fmt, str::FromStr, sync::Arc};

use object_store::{BackoffConfig, ObjectStore, RetryConfig};

use crate::RemoteSettings;

type Opens = fn(&str, &str, &RemoteSettings) -> object_store::Result<Arc<dyn ObjectStore>>;

/// One kind of object store.
pub struct Service {
    /// Its name: the scheme of its URLs.
    pub name: &'static str,
    /// Other schemes in use for the same.
    pub aliases: &'static [&'static str],
    /// What it is and where its settings come from, in a line.
    pub about: &'static str,
    /// What the first part of its URLs is called.
    pub bucket: &'static str,
    /// What to do when it does not let us in.
    pub credentials: &'static str,
    /// Whether it commits large objects in parts and writes on conditions; without, an object goes to a
    /// temporary name first and is copied by the server.
    pub conditional: bool,
    /// Scheme, bucket and settings → the client.
    pub(crate) open: Opens,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Every kind.
pub const ALL: &[&Service] = &[&s3::ENTRY, &gcs::ENTRY, &azure::ENTRY, &web::ENTRY];

/// The service of a scheme.
pub(crate) fn find(scheme: &str) -> Option<&'static Service> {
    ALL.iter().copied().find(|service| service.name == scheme || service.aliases.contains(&scheme))
}

/// What to do when the service of this URL does not let us in.
pub(crate) fn hint(location: &str) -> Option<&'static str> {
    let (scheme, _) = location.split_once("://")?;
    find(scheme).map(|service| service.credentials)
}

fn retry(settings: &RemoteSettings) -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: settings.back_off,
            max_backoff: settings.back_off.saturating_mul(100),
            base: 2.0,
        },
        max_retries: settings.retries,
        retry_timeout: settings.give_up,
    }
}

/// The settings among the given variables that a client's builder knows under their own names.
fn configured<K: FromStr>(settings: &RemoteSettings, prefix: &str) -> Vec<(K, String)> {
    let named = settings.variables.iter().filter(|(name, _)| name.starts_with(prefix));
    let known = named
        .filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse().ok()?, value.clone())));
    known.collect()
}
