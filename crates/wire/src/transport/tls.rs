//! TLS 1.3 over TCP: how two tasks on different hosts, between which others may read and change what
//! passes, come to keys that only they know. What the keys then protect is in `sealed`.
//!
//! Why no certificates. A certificate ties a key to a name by the word of an authority that both sides trust.
//! Our tasks trust one thing only, the cluster key, and it is checked right after the TLS handshake,
//! inside the encrypted channel (`handshake`): each side sends an HMAC, keyed from the cluster key,
//! over fresh nonces of both, who is who, and the *exporter* of this very TLS session. The exporter
//! is a secret that only the two ends of one session know. A man in the middle has two sessions with
//! two exporters, so what it could forward from one side does not verify on the other; an attacker
//! without the key can compute neither. So each process generates a new server key pair and
//! presents it bare (RFC 7250), the client checks that the server holds it, as TLS does, and leaves the
//! question whose it is to the HMAC. No payload is accepted before that. The channel keys are ephemeral: an
//! attacker that learns the cluster key later cannot read what was recorded earlier.

use super::sealed::Secrets;
use super::tcp::would_block;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, ring as provider, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, Error, PeerIncompatible,
    ServerConfig, ServerConnection, SignatureScheme,
};
use std::io::{self, Read, Write};
use std::sync::Arc;

/// Most bytes of a record of TLS 1.3, without its head (RFC 8446, 5.2).
const LONGEST_RECORD: usize = (1 << 14) + 256;

/// What both sides of a process need: made once, shared by all its connections.
pub(crate) struct Configs {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Configs {
    pub(crate) fn new() -> Result<Self, Error> {
        let mut provider = provider::default_provider();
        // One suite that every machine of the last decade has instructions for.
        provider.cipher_suites = vec![
            provider::cipher_suite::TLS13_AES_128_GCM_SHA256,
            provider::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ];
        let provider = Arc::new(provider);
        let versions = &[&rustls::version::TLS13];

        let key = own_key()?;
        let public =
            key.public_key().ok_or(Error::General("a key without a public part".into()))?;
        let shown = CertificateDer::from(public.to_vec());
        let resolver =
            AlwaysResolvesServerRawPublicKeys::new(Arc::new(CertifiedKey::new(vec![shown], key)));
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(resolver));
        // Sessions are not resumed: each connection proves the cluster key again.
        server.send_tls13_tickets = 0;

        let verifier = HoldsItsKey(provider.signature_verification_algorithms);
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        client.resumption = rustls::client::Resumption::disabled();
        client.enable_sni = false;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }
}

/// A key pair that lives as long as this process.
fn own_key() -> Result<Arc<dyn SigningKey>, Error> {
    let random = SystemRandom::new();
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random)
        .map_err(|_| Error::FailedToGetRandomBytes)?;
    provider::sign::any_ecdsa_type(&PrivatePkcs8KeyDer::from(pkcs8.as_ref().to_vec()).into())
}

/// Checks that the server holds the key it shows; whose key it is, the module's header says.
#[derive(Debug)]
struct HoldsItsKey(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for HoldsItsKey {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::Tls13RequiredForQuic))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(cert.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, dss, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Makes the TLS handshake over a stream with its own deadline; also gives the session's exporter.
pub(crate) fn shake(
    configs: &Configs,
    server: bool,
    stream: &mut (impl Read + Write),
) -> io::Result<(Connection, [u8; 32])> {
    let mut connection: Connection = if server {
        ServerConnection::new(Arc::clone(&configs.server)).map_err(bad)?.into()
    } else {
        // The name is not sent and not checked; TLS wants one all the same.
        let name = ServerName::try_from("paceline").expect("a valid name");
        ClientConnection::new(Arc::clone(&configs.client), name).map_err(bad)?.into()
    };
    loop {
        while connection.wants_write() {
            connection.write_tls(stream)?;
        }
        if !connection.is_handshaking() {
            break;
        }
        feed(&mut connection, stream)?;
    }
    let exporter = export(&connection, b"EXPERIMENTAL-paceline-link", b"")?;
    Ok((connection, exporter))
}

/// The secrets for what follows the handshake: one per direction, known to both ends of this session only.
pub(crate) fn secrets(connection: &Connection, server: bool) -> io::Result<Secrets> {
    let secret = |context| export(connection, b"EXPERIMENTAL-paceline-records", context);
    let (up, down) = (secret(b"client to server")?, secret(b"server to client")?);
    Ok(if server {
        Secrets { send: down, receive: up }
    } else {
        Secrets { send: up, receive: down }
    })
}

fn export(connection: &Connection, label: &[u8], context: &[u8]) -> io::Result<[u8; 32]> {
    connection.export_keying_material([0; 32], label, Some(context)).map_err(bad)
}

fn bad(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Reads exactly one record and not a byte more: what follows the handshake is not TLS's to read.
fn feed(connection: &mut Connection, stream: &mut impl Read) -> io::Result<()> {
    let mut record = vec![0; 5];
    stream.read_exact(&mut record)?;
    let length = usize::from(u16::from_be_bytes([record[3], record[4]]));
    if length > LONGEST_RECORD {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no record of TLS is that long"));
    }
    record.resize(5 + length, 0);
    stream.read_exact(&mut record[5..])?;
    let mut rest = &record[..];
    while !rest.is_empty() {
        connection.read_tls(&mut rest)?;
        connection.process_new_packets().map_err(bad)?;
    }
    Ok(())
}

/// A session as a plain blocking stream, for the rest of the handshake.
pub(crate) struct Sealed<'a, S> {
    pub(crate) connection: &'a mut Connection,
    pub(crate) stream: S,
}

impl<S: Read + Write> Read for Sealed<'_, S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(count) = would_block(self.connection.reader().read(into))? {
                return Ok(count);
            }
            feed(self.connection, &mut self.stream)?;
        }
    }
}

impl<S: Read + Write> Write for Sealed<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.connection.writer().write(bytes)?;
        self.flush()?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut self.stream)?;
        }
        Ok(())
    }
}
