//! Azure Blob Storage.

use std::sync::Arc;

use object_store::{
    ObjectStore,
    azure::{AzureConfigKey, MicrosoftAzureBuilder},
};

use super::{Service, configured, retry};
use crate::{RemoteSettings, remote::Connector};

/// This service.
pub(super) const ENTRY: Service = Service {
    name: "az",
    aliases: &["azure", "abfs", "abfss"],
    about: "Azure Blob Storage; AZURE_STORAGE_* variables, workload and managed identities",
    bucket: "the container",
    credentials: "check AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or AZURE_STORAGE_CONNECTION_STRING",
    conditional: true,
    open,
};

fn open(
    scheme: &str,
    container: &str,
    settings: &RemoteSettings,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    let mut builder = MicrosoftAzureBuilder::from_env();
    for (key, value) in configured(settings, "AZURE_") {
        builder = builder.with_config(key, value);
    }
    if let Some(text) = settings.variable("AZURE_STORAGE_CONNECTION_STRING") {
        for (key, value) in connection(&text) {
            builder = builder.with_config(key, value);
        }
    }
    // `abfss://container@account.dfs.core.windows.net` says both.
    builder = match container.split_once('@') {
        Some(_) => builder.with_url(format!("{scheme}://{container}")),
        None => builder.with_container_name(container),
    };
    let plain = builder
        .get_config_value(&AzureConfigKey::Endpoint)
        .is_some_and(|endpoint| endpoint.starts_with("http://"));
    let store = builder
        .with_allow_http(plain)
        .with_retry(retry(settings))
        .with_http_connector(Connector::new(settings))
        .build()?;
    Ok(Arc::new(store))
}

/// What a connection string says, as the portal shows it.
fn connection(text: &str) -> Vec<(AzureConfigKey, String)> {
    let mut found = Vec::new();
    let (mut name, mut suffix, mut protocol) = (None, "core.windows.net", "https");
    let mut endpoint = None;
    for (key, value) in text.split(';').filter_map(|part| part.split_once('=')) {
        match key.trim() {
            "AccountName" => name = Some(value),
            "AccountKey" => found.push((AzureConfigKey::AccessKey, value.to_owned())),
            "SharedAccessSignature" => found.push((AzureConfigKey::SasKey, value.to_owned())),
            "BlobEndpoint" => endpoint = Some(value.trim_end_matches('/').to_owned()),
            "EndpointSuffix" => suffix = value,
            "DefaultEndpointsProtocol" => protocol = value,
            _ => {}
        }
    }
    if let Some(name) = name {
        found.push((AzureConfigKey::AccountName, name.to_owned()));
        endpoint.get_or_insert_with(|| format!("{protocol}://{name}.blob.{suffix}"));
    }
    found.extend(endpoint.map(|endpoint| (AzureConfigKey::Endpoint, endpoint)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_string_gives_account_key_and_address() {
        let cloud = connection(
            "DefaultEndpointsProtocol=https;AccountName=lab;AccountKey=ab==;EndpointSuffix=core.windows.net",
        );
        assert_eq!(
            cloud,
            [
                (AzureConfigKey::AccessKey, "ab==".to_owned()),
                (AzureConfigKey::AccountName, "lab".to_owned()),
                (AzureConfigKey::Endpoint, "https://lab.blob.core.windows.net".to_owned()),
            ]
        );
        let emulator = connection("AccountName=dev;BlobEndpoint=http://127.0.0.1:10000/dev/");
        assert_eq!(emulator[1].1, "http://127.0.0.1:10000/dev");
    }
}
