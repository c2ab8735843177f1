//! Web servers: any one to read from, one that speaks WebDAV to list and write too.

use std::sync::Arc;

use object_store::{ClientOptions, ObjectStore, http::HttpBuilder};

use super::{Service, retry};
use crate::{RemoteSettings, remote::Connector};

/// This service.
pub(super) const ENTRY: Service = Service {
    name: "https",
    aliases: &["http"],
    about: "web servers, read only; with WebDAV also listed and written",
    bucket: "the host",
    credentials: "the server asks for a permission that an address alone does not give",
    conditional: false,
    open,
};

fn open(
    scheme: &str,
    host: &str,
    settings: &RemoteSettings,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    let store = HttpBuilder::new()
        .with_url(format!("{scheme}://{host}"))
        .with_client_options(ClientOptions::new().with_allow_http(true))
        .with_retry(retry(settings))
        .with_http_connector(Connector::new(settings).following_redirects())
        .build()?;
    Ok(Arc::new(store))
}
