//! The files `aws configure` writes, `~/.aws/credentials` and `~/.aws/config`, as a source of credentials.
//!
//! Keys that a tool renews in these files, or that a `credential_process` gives out, are read again every
//! few minutes, so that a long run outlives them.

use std::{
    collections::HashMap,
    fmt, fs,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use object_store::{CredentialProvider, Error, aws::AwsCredential};
use serde::Deserialize;

use crate::{RemoteSettings, remote::NoCredentials};

/// Time after which the files are read again. Keys that expire do so after an hour or more.
const FRESH: Duration = Duration::from_secs(180);

/// What a profile says.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) access_key_id: Option<String>,
    pub(crate) secret_access_key: Option<String>,
    pub(crate) session_token: Option<String>,
    pub(crate) region: Option<String>,
    /// A command that prints keys.
    pub(crate) credential_process: Option<String>,
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile").field("region", &self.region).finish_non_exhaustive()
    }
}

impl Profile {
    /// Whether it says who we are.
    pub(crate) fn gives_credentials(&self) -> bool {
        self.credential_process.is_some()
            || self.access_key_id.is_some() && self.secret_access_key.is_some()
    }

    fn credential(self) -> Result<AwsCredential, ProfileError> {
        match (self.access_key_id, self.secret_access_key, self.credential_process) {
            (Some(key_id), Some(secret_key), _) => {
                Ok(AwsCredential { key_id, secret_key, token: self.session_token })
            }
            (_, _, Some(command)) => ask(&command),
            _ => Err(ProfileError::Gone),
        }
    }
}

/// Why a profile gives no keys.
#[derive(Debug, thiserror::Error)]
enum ProfileError {
    #[error("the profile has no keys any more")]
    Gone,
    #[error("`credential_process` cannot be run: {0}")]
    Start(std::io::Error),
    /// Its own words went to stderr, which is ours.
    #[error("`credential_process` failed: {0}")]
    Failed(std::process::ExitStatus),
    #[error("`credential_process` printed no keys: {0}")]
    Malformed(serde_json::Error),
}

/// What a `credential_process` prints.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Printed {
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
}

fn ask(command: &str) -> Result<AwsCredential, ProfileError> {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = shell.output().map_err(ProfileError::Start)?;
    if !output.status.success() {
        return Err(ProfileError::Failed(output.status));
    }
    let Printed { access_key_id, secret_access_key, session_token } =
        serde_json::from_slice(&output.stdout).map_err(ProfileError::Malformed)?;
    Ok(AwsCredential {
        key_id: access_key_id,
        secret_key: secret_access_key,
        token: session_token.filter(|token| !token.is_empty()),
    })
}

/// Credentials from a profile, read again from time to time.
pub(crate) struct ProfileCredentials {
    settings: RemoteSettings,
    last: Mutex<Option<(Instant, Arc<AwsCredential>)>>,
}

impl ProfileCredentials {
    pub(crate) fn new(settings: &RemoteSettings) -> Self {
        Self { settings: settings.clone(), last: Mutex::new(None) }
    }
}

impl fmt::Debug for ProfileCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProfileCredentials").finish_non_exhaustive()
    }
}

#[async_trait]
impl CredentialProvider for ProfileCredentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        // Held while the process runs: other callers need its answer too.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((when, credential)) = &*last
            && when.elapsed() < FRESH
        {
            return Ok(Arc::clone(credential));
        }
        match (read(&self.settings).credential(), &*last) {
            (Ok(credential), _) => {
                let credential = Arc::new(credential);
                *last = Some((Instant::now(), Arc::clone(&credential)));
                Ok(credential)
            }
            // A file in the middle of being written: what was good three minutes ago may still be.
            (Err(_), Some((_, credential))) => Ok(Arc::clone(credential)),
            (Err(error), None) => {
                Err(Error::Unauthenticated { path: "~/.aws".to_owned(), source: Box::new(error) })
            }
        }
    }
}

/// No credentials at all, said at once where the machine is not to be asked.
#[derive(Debug)]
pub(crate) struct Anonymous;

#[async_trait]
impl CredentialProvider for Anonymous {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        Err(Error::Unauthenticated { path: String::new(), source: Box::new(NoCredentials) })
    }
}

/// The profile `AWS_PROFILE` names, or the default one; empty where there are no files.
pub(crate) fn read(settings: &RemoteSettings) -> Profile {
    let variable = |name: &str| settings.variable(name);
    let name = variable("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
    let file = |variable_name: &str, usual: &str| {
        let path = variable(variable_name).map(PathBuf::from).or_else(|| {
            variable("HOME").map(|home| PathBuf::from(home).join(".aws").join(usual))
        })?;
        // A profile that cannot be read is as good as none: the roles of the machine come next.
        fs::read_to_string(path).ok()
    };
    let credentials = file("AWS_SHARED_CREDENTIALS_FILE", "credentials").unwrap_or_default();
    let config = file("AWS_CONFIG_FILE", "config").unwrap_or_default();
    parse(&name, &credentials, &config)
}

fn parse(name: &str, credentials: &str, config: &str) -> Profile {
    // The two files name their sections differently.
    let mut values = section(config, &format!("profile {name}"));
    if name == "default" {
        values.extend(section(config, name));
    }
    values.extend(section(credentials, name));
    let mut take = |key: &str| values.remove(key).filter(|value| !value.is_empty());
    Profile {
        access_key_id: take("aws_access_key_id"),
        secret_access_key: take("aws_secret_access_key"),
        session_token: take("aws_session_token"),
        region: take("region"),
        credential_process: take("credential_process"),
    }
}

/// The settings below `[name]`.
fn section(text: &str, name: &str) -> HashMap<String, String> {
    let mut inside = false;
    let mut values = HashMap::new();
    for line in text.lines() {
        // Indented lines belong to a nested setting such as `s3 =`, which has nothing for us.
        let nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if let Some(title) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            inside = title.trim() == name;
        } else if inside
            && !nested
            && !line.starts_with(['#', ';'])
            && let Some((key, value)) = line.split_once('=')
        {
            values.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDENTIALS: &str = "# keys\n[default]\naws_access_key_id = A\naws_secret_access_key=S/=+\n\n\
                               [lab]\naws_access_key_id=B\naws_secret_access_key=T\naws_session_token=X\n";
    const CONFIG: &str = "[default]\nregion = eu-west-1\ns3 =\n  region = nowhere\n\
                          [profile lab]\nregion=us-west-2\n";

    #[test]
    fn the_profile_asked_for_is_read_from_both_files() {
        let default = parse("default", CREDENTIALS, CONFIG);
        assert_eq!(default.access_key_id.as_deref(), Some("A"));
        assert_eq!(default.secret_access_key.as_deref(), Some("S/=+"));
        assert_eq!((default.session_token, default.region), (None, Some("eu-west-1".into())));
        let lab = parse("lab", CREDENTIALS, CONFIG);
        assert_eq!(lab.access_key_id.as_deref(), Some("B"));
        assert_eq!(
            (lab.session_token.as_deref(), lab.region.as_deref()),
            (Some("X"), Some("us-west-2"))
        );
        assert_eq!(parse("other", CREDENTIALS, CONFIG), Profile::default());
    }

    #[test]
    fn a_process_may_give_out_the_keys() {
        let config = "[profile sso]\ncredential_process = printf \
                      '{\"Version\":1,\"AccessKeyId\":\"P\",\"SecretAccessKey\":\"Q\",\"SessionToken\":\"R\"}'\n\
                      [profile bad]\ncredential_process = false\n[profile odd]\ncredential_process = echo 7\n";
        let credential = parse("sso", "", config).credential().unwrap();
        assert_eq!((credential.key_id.as_str(), credential.token.as_deref()), ("P", Some("R")));
        for (name, words) in [("bad", "failed"), ("odd", "printed no keys")] {
            let error = parse(name, "", config).credential().unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
        assert!(!parse("sso", "", "").gives_credentials());
    }
}
