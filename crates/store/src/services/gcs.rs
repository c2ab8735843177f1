//! Google Cloud Storage.

use std::sync::Arc;

use object_store::{ObjectStore, gcp::GoogleCloudStorageBuilder};

use super::{Service, configured, retry};
use crate::{RemoteSettings, remote::Connector};

/// This service.
pub(super) const ENTRY: Service = Service {
    name: "gs",
    aliases: &["gcs"],
    about: "Google Cloud Storage; GOOGLE_* variables, application default credentials, the machine's service account",
    bucket: "the bucket",
    credentials: "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS",
    conditional: true,
    open,
};

fn open(
    _: &str,
    bucket: &str,
    settings: &RemoteSettings,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(bucket)
        .with_retry(retry(settings))
        .with_http_connector(Connector::new(settings));
    for (key, value) in configured(settings, "GOOGLE_") {
        builder = builder.with_config(key, value);
    }
    // What Google's own libraries look at. An emulator asks for no credentials; some token is needed all the
    // same, since writes ask for one even where signatures are left out.
    if let Some(host) = settings.variable("STORAGE_EMULATOR_HOST") {
        let base = if host.contains("://") { host } else { format!("http://{host}") };
        builder = builder.with_base_url(base.trim_end_matches('/')).with_bearer_token("emulator");
    }
    Ok(Arc::new(builder.build()?))
}
