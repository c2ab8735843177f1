//! A path or URL → the store it names.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use object_store::ObjectStore;

use crate::{LocalStore, RemoteSettings, Result, Store, StoreError, remote::RemoteStore, services};

/// The clients of this process, by scheme and bucket.
static CLIENTS: Mutex<BTreeMap<(String, String), Arc<dyn ObjectStore>>> =
    Mutex::new(BTreeMap::new());

/// Whether this is a URL rather than a path of this machine.
#[must_use]
pub fn is_remote(location: &Path) -> bool {
    scheme(location).is_some()
}

/// The letters before `://`, where there are any.
fn scheme(location: &Path) -> Option<&str> {
    let (scheme, _) = location.to_str()?.split_once("://")?;
    let mut letters = scheme.bytes();
    let named = letters.next().is_some_and(|first| first.is_ascii_alphabetic())
        && letters.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    // One letter is a drive or a typing error, not a scheme.
    (named && scheme.len() > 1).then_some(scheme)
}

/// The store whose root is the folder `location`.
///
/// # Errors
/// A URL of a service that is not known, without a bucket, or with settings in the environment that
/// make no sense. Nothing is asked of the service yet.
pub fn open(location: impl AsRef<Path>) -> Result<Arc<dyn Store>> {
    open_with(location, &RemoteSettings::default())
}

/// As [`open`], with other limits of patience.
///
/// # Errors
/// As [`open`].
pub fn open_with(location: impl AsRef<Path>, settings: &RemoteSettings) -> Result<Arc<dyn Store>> {
    let location = location.as_ref();
    let Some(scheme) = scheme(location) else {
        return Ok(Arc::new(LocalStore::new(location)));
    };
    let url = location.to_string_lossy();
    if scheme == "file" {
        let path = url["file://".len()..].trim_start_matches("localhost");
        return Ok(Arc::new(LocalStore::new(path)));
    }
    let bad = |reason: String| StoreError::BadLocation { location: url.to_string(), reason };
    let service = services::find(scheme).ok_or_else(|| {
        let known: Vec<&str> = services::ALL.iter().map(|service| service.name).collect();
        bad(format!("no service is called `{scheme}`; there are {}", known.join(", ")))
    })?;
    let rest = &url[scheme.len() + "://".len()..];
    if rest.contains(['?', '#']) {
        return Err(bad("a query or fragment has no meaning here".to_owned()));
    }
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    // Locations are shown, logged and recorded in run folders, where a password does not belong.
    if let Some((user, host)) = bucket.rsplit_once('@')
        && user.contains(':')
    {
        return Err(StoreError::BadLocation {
            location: format!("{scheme}://…@{host}"),
            reason: "a password in an address would be recorded in logs and run folders".to_owned(),
        });
    }
    if bucket.is_empty() {
        return Err(bad(format!("{} is missing", service.bucket)));
    }
    let prefix: Vec<&str> = prefix.split('/').filter(|part| !part.is_empty()).collect();
    if prefix.iter().any(|part| matches!(*part, "." | "..")) {
        return Err(bad("`.` and `..` have no meaning in a store".to_owned()));
    }
    let make = || {
        (service.open)(scheme, bucket, settings).map_err(|error| bad(crate::remote::words(&error)))
    };
    // Connections and credentials are worth keeping: a set of a thousand shards is opened shard by shard.
    let objects = if *settings == RemoteSettings::default() {
        let mut known = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(&(scheme.to_owned(), bucket.to_owned())) {
            Some(client) => Arc::clone(client),
            None => {
                let client = make()?;
                known.insert((scheme.to_owned(), bucket.to_owned()), Arc::clone(&client));
                client
            }
        }
    } else {
        make()?
    };
    let root = format!("{scheme}://{bucket}");
    Ok(Arc::new(RemoteStore::new(objects, service, root, &prefix.join("/"), settings.renew)))
}

/// The folder of a file or object, and its name there.
///
/// # Errors
/// A location that ends in no name.
pub fn split(location: &Path) -> Result<(PathBuf, String)> {
    let bad = || StoreError::BadLocation {
        location: location.display().to_string(),
        reason: "it names no file".to_owned(),
    };
    let text = location.to_str().ok_or_else(bad)?;
    let (folder, name) = match text.rsplit_once('/') {
        Some((folder, name)) => (folder, name),
        None => (".", text),
    };
    // `s3://bucket` is a bucket, not a file called so.
    if name.is_empty() || folder.ends_with(":/") || folder.ends_with(':') {
        return Err(bad());
    }
    let folder = if folder.is_empty() { "/" } else { folder };
    Ok((PathBuf::from(folder), name.to_owned()))
}

/// The store of the folder of a file or object, and its key there.
///
/// # Errors
/// As [`open`]; a location that ends in no name.
pub fn open_file(location: &Path) -> Result<(Arc<dyn Store>, String)> {
    let (folder, name) = split(location)?;
    Ok((open(folder)?, name))
}

/// Whether there is a file or object of that name; a failure to find out is a no.
#[must_use]
pub fn is_file(location: &Path) -> bool {
    if !is_remote(location) {
        return location.is_file();
    }
    open_file(location).is_ok_and(|(store, key)| matches!(store.size(&key), Ok(Some(_))))
}

/// A whole file or object, if it has no more than `limit` bytes.
///
/// # Errors
/// As [`Store::read`].
pub fn read_file(location: &Path, limit: u64) -> Result<Vec<u8>> {
    let (store, key) = open_file(location)?;
    store.read(&key, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_paths_are_told_apart() {
        for url in ["s3://b/k", "gs://b", "https://host/a/b", "file:///tmp/x", "ftp://x/y"] {
            assert!(is_remote(Path::new(url)), "{url}");
        }
        for path in ["/s3/b", "s3:/b", "a://b/c", "://x", "./a b", "synthetic:digits", "-x://y"] {
            assert!(!is_remote(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_wrong_url_says_what_is_wrong() {
        for (url, words) in [
            ("ftp://host/x", "no service is called `ftp`"),
            ("s3:///key", "bucket is missing"),
            ("s3://bucket/a/../b", "`..`"),
            ("https://host/x?sig=1", "query"),
        ] {
            let message = open(url).unwrap_err().to_string();
            assert!(message.contains(url) && message.contains(words), "{message}");
        }
    }

    #[test]
    fn folders_and_names_come_apart() {
        let parts = |text: &str| split(Path::new(text)).map(|(a, b)| (a.display().to_string(), b));
        assert_eq!(parts("s3://b/a/k.json").unwrap(), ("s3://b/a".into(), "k.json".into()));
        assert_eq!(parts("s3://b/k").unwrap(), ("s3://b".into(), "k".into()));
        assert_eq!(parts("k").unwrap(), (".".into(), "k".into()));
        assert_eq!(parts("/k").unwrap(), ("/".into(), "k".into()));
        assert!(parts("s3://bucket").is_err() && parts("s3://b/a/").is_err());
    }

    #[test]
    fn joining_names_to_a_url_gives_the_url_of_the_object() {
        let store = open("file:///tmp/x").unwrap();
        assert_eq!(store.locate("a/b"), "/tmp/x/a/b");
        assert_eq!(Path::new("s3://b/a").join("k").to_str(), Some("s3://b/a/k"));
    }
}
