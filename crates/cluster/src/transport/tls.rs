//! TLS 1.3 over TCP: between hosts, where others may read and change what passes.
//!
//! Why no certificates. A certificate ties a key to a name by the word of somebody both sides trust.
//! Our tasks trust one thing only, the cluster key, and it is checked right after the TLS handshake,
//! inside the encrypted channel (`handshake`): each side sends an HMAC, keyed from the cluster key,
//! over fresh nonces of both, who is who, and the *exporter* of this very TLS session. The exporter
//! is a secret that only the two ends of one session know. Somebody in the middle has two sessions with
//! two exporters, so what it could pass on from one side does not verify on the other; somebody
//! without the key can compute neither. So the server's key pair is made anew for each process and
//! presented bare (RFC 7250), the client checks that the server holds it, as TLS does, and leaves the
//! question whose it is to the HMAC. No payload is accepted before that. The channel keys are ephemeral: who
//! learns the cluster key later cannot read what was recorded earlier.

use super::patience::Patience;
use super::tcp::{self, Ready, sleep_on, would_block};
use super::{Inlet, Outlet};
use crate::frame::{FramedReceiver, FramedSender, Peer};
use crate::link::Link;
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
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Read-ahead of encrypted bytes: a few records.
const AHEAD: usize = 128 << 10;

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
        // Nobody resumes a session: each connection proves the cluster key afresh.
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
    let bad = |error: Error| io::Error::new(io::ErrorKind::InvalidData, error);
    let mut connection: Connection = if server {
        ServerConnection::new(Arc::clone(&configs.server)).map_err(bad)?.into()
    } else {
        // The name is not sent and not checked; TLS wants one all the same.
        let name = ServerName::try_from("paceline").expect("a valid name");
        ClientConnection::new(Arc::clone(&configs.client), name).map_err(bad)?.into()
    };
    while connection.is_handshaking() {
        connection.complete_io(stream)?;
    }
    while connection.wants_write() {
        connection.write_tls(stream)?;
    }
    let exporter = connection
        .export_keying_material([0; 32], b"EXPERIMENTAL-paceline-link", None)
        .map_err(bad)?;
    Ok((connection, exporter))
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
            self.connection.read_tls(&mut self.stream)?;
            self.connection
                .process_new_packets()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
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

/// A session that both halves of a link use in turns. The socket does not block, so nobody holds the
/// lock longer than a few records take to encrypt.
struct Session {
    connection: Mutex<Connection>,
    stream: Arc<TcpStream>,
}

impl Session {
    fn lock(&self) -> MutexGuard<'_, Connection> {
        // After a panic in the middle of a record the session is useless and says so itself.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what waits to be sent; whether anything went.
    fn write_out(&self, connection: &mut Connection) -> io::Result<bool> {
        let mut moved = false;
        while connection.wants_write() {
            match would_block(connection.write_tls(&mut &*self.stream))? {
                Some(count) if count > 0 => moved = true,
                _ => break,
            }
        }
        Ok(moved)
    }
}

struct TlsOutlet {
    session: Arc<Session>,
}

impl Outlet for TlsOutlet {
    fn offer(&mut self, parts: &[&[u8]]) -> io::Result<usize> {
        let mut connection = self.session.lock();
        let mut moved = 0;
        'parts: for part in parts {
            let mut rest = *part;
            while !rest.is_empty() {
                let count = connection.writer().write(rest)?;
                if count == 0 {
                    self.session.write_out(&mut connection)?;
                    if connection.wants_write() {
                        break 'parts;
                    }
                }
                rest = &rest[count..];
                moved += count;
            }
        }
        self.session.write_out(&mut connection)?;
        Ok(moved)
    }

    fn is_clear(&self) -> bool {
        !self.session.lock().wants_write()
    }

    fn clear(&mut self) -> io::Result<bool> {
        let mut connection = self.session.lock();
        self.session.write_out(&mut connection)
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        sleep_on(&[(self.session.stream.as_raw_fd(), Ready::Write)], limit)
    }

    fn socket(&self) -> Option<RawFd> {
        Some(self.session.stream.as_raw_fd())
    }
}

impl Drop for TlsOutlet {
    fn drop(&mut self) {
        let mut connection = self.session.lock();
        connection.send_close_notify();
        // Farewell is a courtesy: the other side takes a bare end of the stream the same way.
        drop(self.session.write_out(&mut connection));
        drop(self.session.stream.shutdown(Shutdown::Write));
    }
}

struct TlsInlet {
    session: Arc<Session>,
    /// What came from the socket. TLS itself asks for 4 KiB at a time, each a call to the system.
    ahead: Box<[u8]>,
    here: std::ops::Range<usize>,
    patience: Patience,
}

impl Inlet for TlsInlet {
    fn take(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let mut connection = self.session.lock();
        loop {
            if let Some(count) = would_block(connection.reader().read(into))? {
                return Ok(Some(count));
            }
            if self.here.is_empty() {
                let Some(count) = would_block((&*self.session.stream).read(&mut self.ahead))?
                else {
                    return Ok(None);
                };
                self.here = 0..count;
            }
            let mut rest = &self.ahead[self.here.clone()];
            self.here.start += connection.read_tls(&mut rest)?;
            connection
                .process_new_packets()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        let fd = self.session.stream.as_raw_fd();
        let session = &self.session;
        let found = self.patience.look(|| peek(&session.stream))?;
        if !found {
            let began = Instant::now();
            sleep_on(&[(fd, Ready::Read)], limit)?;
            self.patience.slept(began.elapsed());
        }
        Ok(())
    }

    fn socket(&self) -> Option<RawFd> {
        Some(self.session.stream.as_raw_fd())
    }
}

/// Whether the socket has bytes or has ended.
fn peek(stream: &TcpStream) -> io::Result<bool> {
    Ok(would_block(stream.peek(&mut [0]))?.is_some())
}

/// A link over an encrypted connection whose ends have proved who they are.
pub(crate) fn link(connection: Connection, stream: TcpStream, peer: Peer) -> io::Result<Link> {
    stream.set_nonblocking(true)?;
    let stream = Arc::new(stream);
    let session =
        Arc::new(Session { connection: Mutex::new(connection), stream: Arc::clone(&stream) });
    let inlet = TlsInlet {
        session: Arc::clone(&session),
        ahead: vec![0; AHEAD].into_boxed_slice(),
        here: 0..0,
        patience: Patience::new(),
    };
    Ok(Link {
        peer: peer.task,
        address: peer.address.clone(),
        sender: Box::new(FramedSender::new(TlsOutlet { session }, peer.clone())),
        receiver: Box::new(FramedReceiver::new(inlet, peer)),
        closer: tcp::closer(&stream),
        carrier: "tls",
        pair: None,
    })
}
