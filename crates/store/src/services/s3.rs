//! Amazon S3 and what speaks its language (MinIO, Ceph, R2).

use std::sync::Arc;

use object_store::{
    ObjectStore,
    aws::{AmazonS3Builder, AmazonS3ConfigKey, S3CopyIfNotExists},
};

use super::{Service, configured, retry};
use crate::{
    RemoteSettings,
    aws_profile::{self, Anonymous, ProfileCredentials},
    remote::Connector,
};

/// This service.
pub(super) const ENTRY: Service = Service {
    name: "s3",
    aliases: &["s3a", "s3n"],
    about: "Amazon S3 and compatible stores; AWS_* variables, ~/.aws, web identity, container and instance roles",
    bucket: "the bucket",
    credentials: "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN or AWS_PROFILE; renew what has expired",
    conditional: true,
    open,
};

fn open(
    _: &str,
    bucket: &str,
    settings: &RemoteSettings,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
    for (key, value) in configured(settings, "AWS_") {
        builder = builder.with_config(key, value);
    }
    if let Some(endpoint) = settings.variable("AWS_ENDPOINT_URL_S3") {
        builder = builder.with_endpoint(endpoint);
    }
    let set = |builder: &AmazonS3Builder, key| builder.get_config_value(&key).is_some();
    // After keys in the environment and before the roles of containers and machines come the files that
    // `aws configure` writes.
    let roles = [
        AmazonS3ConfigKey::WebIdentityTokenFile,
        AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
        AmazonS3ConfigKey::ContainerCredentialsFullUri,
    ];
    let named = settings.variable("AWS_PROFILE").is_some();
    let profile = aws_profile::read(settings);
    let disabled = settings.variable("AWS_EC2_METADATA_DISABLED");
    let has_role = roles.into_iter().any(|key| set(&builder, key));
    if !set(&builder, AmazonS3ConfigKey::AccessKeyId) {
        if profile.gives_credentials() && (named || !has_role) {
            builder = builder.with_credentials(Arc::new(ProfileCredentials::new(settings)));
        } else if !has_role && disabled.is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            builder = builder.with_credentials(Arc::new(Anonymous));
        }
    }
    if !set(&builder, AmazonS3ConfigKey::Region)
        && let Some(region) = profile.region
    {
        builder = builder.with_region(region);
    }
    let plain = builder
        .get_config_value(&AmazonS3ConfigKey::Endpoint)
        .is_some_and(|endpoint| endpoint.starts_with("http://"));
    let store = builder
        .with_allow_http(plain)
        .with_copy_if_not_exists(S3CopyIfNotExists::Multipart)
        // Not every compatible store has the call that removes many at once.
        .with_disable_bulk_delete(true)
        .with_retry(retry(settings))
        .with_http_connector(Connector::new(settings))
        .build()?;
    Ok(Arc::new(store))
}
