//! Who is at the other end of a connection, where no remote shell vouches for it: a handshake of
//! TLS 1.3 with raw public keys (RFC 8446, RFC 7250).
//!
//! rustls does it. What follows on the connection are the records of [`super::seal`], with a secret
//! that both ends export from the handshake (RFC 8446, section 7.5): the two directions are
//! independent, and all connections have the same records.
//!
//! Nothing here reads or writes, so that a server can have many of them: bytes go in and come out.

use super::seal::{Role, SALT_BYTES, SECRET_BYTES, Seals, has_aes};
use crate::keys::{KEY_BYTES, KeyPair, PublicKey};
use crate::whole::fill_random;
use lads_core::protection::Protection;
use ring::signature::{ED25519, UnparsedPublicKey};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::ring::cipher_suite::{
    TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256,
};
use rustls::crypto::ring::kx_group::X25519;
use rustls::crypto::{
    CryptoProvider, GetRandomFailed, KeyProvider, SecureRandom, WebPkiSupportedAlgorithms,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::version::TLS13;
use rustls::{
    AlertDescription, CertificateError, CipherSuite, ClientConfig, ClientConnection, Connection,
    DigitallySignedStruct, DistinguishedName, Error, ServerConfig, ServerConnection,
    SignatureAlgorithm, SignatureScheme,
};
use std::io::{self, Read, Write};
use std::ops::RangeInclusive;
use std::sync::Arc;
use thiserror::Error as ThisError;

/// What both ends export the secret under.
const EXPORTED: &[u8] = b"EXPORTER-lads-records";
/// The bytes before an Ed25519 key in a `SubjectPublicKeyInfo` (RFC 8410, section 10.1).
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// The bytes before a TLS record: its type, a version, and its length.
const HEAD_BYTES: usize = 5;
/// The types of records: changes of cipher, alerts, handshakes, and what is encrypted.
const RECORD_TYPES: RangeInclusive<u8> = 20..=23;
/// The longest record (RFC 8446, section 5.2), in bytes.
const RECORD_BYTES_MAX: usize = (1 << 14) + 256;
/// The most bytes that the other end may send. A handshake takes fewer than 1 KiB of each end; half
/// of this would do as well, and the double would be read from strangers for nothing.
const BYTES_MAX: usize = 16 << 10;

/// What a connection is for. Both ends must want the same (ALPN, RFC 7301).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Transfers.
    Transfer,
    /// Remote files of MPI programs, with a token.
    Files,
    /// The same in a session of a daemon.
    FilesSession,
}

impl Purpose {
    fn name(self) -> Vec<u8> {
        match self {
            Self::Transfer => b"lads-transfer".to_vec(),
            Self::Files => b"lads-files".to_vec(),
            Self::FilesSession => b"lads-files-session".to_vec(),
        }
    }
}

/// Why there is no connection.
#[derive(Debug, ThisError)]
pub(crate) enum Refusal {
    /// The server has another key than the one that is expected.
    #[error("it has the key {0}")]
    OtherKey(PublicKey),
    /// It speaks no TLS, or something in its handshake is wrong.
    #[error("no handshake: {0}")]
    Broken(#[from] Error),
    /// It sends bytes of something else.
    #[error("no handshake: other bytes")]
    NoTls,
    /// It sends too much.
    #[error("no handshake: too many bytes")]
    TooLong,
    /// The connection is lost, or too slow.
    #[error(transparent)]
    Lost(#[from] io::Error),
}

impl Refusal {
    /// Whether the other end says that this one has another key than the one that it expects.
    pub(crate) fn is_other_key_told(&self) -> bool {
        let told = AlertDescription::CertificateUnknown;
        matches!(self, Self::Broken(Error::AlertReceived(alert)) if *alert == told)
    }

    /// Whether the other end has closed the connection without a reason.
    pub(crate) fn is_closed(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let closed = [UnexpectedEof, ConnectionReset, BrokenPipe];
        matches!(self, Self::Lost(error) if closed.contains(&error.kind()))
    }
}

/// What an end that listens has in common for all its connections.
#[derive(Clone, Debug)]
pub(crate) struct Listening(Arc<ServerConfig>);

impl Listening {
    /// # Errors
    /// If the host has no random bytes.
    pub(crate) fn new(own: &KeyPair, purposes: &[Purpose]) -> Result<Self, Refusal> {
        let keys = AlwaysResolvesServerRawPublicKeys::new(Arc::new(certified(own)));
        let mut server = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(Arc::new(Expected(None)))
            .with_cert_resolver(Arc::new(keys));
        server.alpn_protocols = purposes.iter().map(|it| it.name()).collect();
        server.send_tls13_tickets = 0;
        Ok(Self(Arc::new(server)))
    }
}

/// One end of a handshake.
#[derive(Debug)]
pub(crate) struct Handshake {
    connection: Connection,
    role: Role,
    /// The record that comes in, as far as it is here.
    incoming: Vec<u8>,
    bytes_heard: usize,
}

impl Handshake {
    /// The end that connects to the owner of `expected`.
    ///
    /// # Errors
    /// If the host has no random bytes.
    pub(crate) fn client(
        own: &KeyPair,
        expected: PublicKey,
        purpose: Purpose,
    ) -> Result<Self, Refusal> {
        let client = ClientConfig::builder_with_provider(Arc::new(provider()))
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Expected(Some(expected))));
        let keys = AlwaysResolvesClientRawPublicKeys::new(Arc::new(certified(own)));
        let mut client = client.with_client_cert_resolver(Arc::new(keys));
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        client.alpn_protocols = vec![purpose.name()];
        let name = ServerName::try_from("lads").expect("it is a name");
        let connection = ClientConnection::new(Arc::new(client), name)?;
        Ok(Self::new(connection.into(), Role::Connects))
    }

    /// The end that listens. The other end shows that it has the private part of a key, of any.
    ///
    /// # Errors
    /// If the host has no random bytes.
    pub(crate) fn server(listening: &Listening) -> Result<Self, Refusal> {
        let connection = ServerConnection::new(Arc::clone(&listening.0))?;
        Ok(Self::new(connection.into(), Role::Listens))
    }

    fn new(connection: Connection, role: Role) -> Self {
        Self { connection, role, incoming: Vec::new(), bytes_heard: 0 }
    }

    /// Bytes for the other end, also after an error: it hears why.
    pub(crate) fn output(&mut self) -> Vec<u8> {
        let mut output = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut output).expect("memory takes all bytes");
        }
        output
    }

    /// How many bytes it needs next. 0 if it is done: what comes then is for others.
    pub(crate) fn wants(&self) -> usize {
        if !self.connection.is_handshaking() {
            return 0;
        }
        match self.incoming.get(3..HEAD_BYTES) {
            None => HEAD_BYTES - self.incoming.len(),
            Some(length) => {
                let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
                HEAD_BYTES + length - self.incoming.len()
            }
        }
    }

    /// Takes bytes of the other end, at most as many as it wants.
    ///
    /// # Errors
    /// If the other end is another one than expected, or breaks the rules.
    pub(crate) fn hear(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        self.bytes_heard += bytes.len();
        self.incoming.extend_from_slice(bytes);
        // A record has one of these types, and a version of which nothing but the 3 is looked at.
        let is_tls = match self.incoming[..] {
            [] => true,
            [kind] => RECORD_TYPES.contains(&kind),
            [kind, version, ..] => RECORD_TYPES.contains(&kind) && version == 3,
        };
        if !is_tls {
            return Err(Refusal::NoTls);
        }
        let is_long = self.incoming.len() == HEAD_BYTES && self.wants() > RECORD_BYTES_MAX;
        if self.bytes_heard > BYTES_MAX || is_long {
            return Err(Refusal::TooLong);
        }
        let is_whole = self.incoming.len() > HEAD_BYTES && self.wants() == 0;
        // A record without content is refused by rustls.
        let is_empty = self.incoming.len() == HEAD_BYTES && self.wants() == 0;
        if !is_whole && !is_empty {
            return Ok(());
        }
        let record = std::mem::take(&mut self.incoming);
        let mut rest = &record[..];
        while !rest.is_empty() {
            let read = self.connection.read_tls(&mut rest).map_err(|error| not_read(&error))?;
            if read == 0 {
                return Err(Refusal::TooLong);
            }
            self.connection.process_new_packets().map_err(of_rustls)?;
        }
        Ok(())
    }

    /// Reports whether both ends want the connection for this. A client wants it for one purpose.
    pub(crate) fn is_for(&self, purpose: Purpose) -> bool {
        self.connection.alpn_protocol().is_some_and(|name| name == purpose.name())
    }

    /// What protects the connection from now on, and the key of the other end.
    ///
    /// # Errors
    /// If the handshake is not done.
    pub(crate) fn finish(self) -> Result<(Seals, PublicKey), Refusal> {
        let peer = self.connection.peer_certificates().unwrap_or_default();
        let key = peer.first().and_then(public_key).ok_or_else(no_key)?;
        let exported = [0; SECRET_BYTES + SALT_BYTES];
        let exported = self.connection.export_keying_material(exported, EXPORTED, None)?;
        let (secret, salt) = exported.split_at(SECRET_BYTES);
        let (secret, salt) = (
            secret.try_into().expect("it was split there"),
            salt.try_into().expect("it was split there"),
        );
        let suite = self.connection.negotiated_cipher_suite().map(|it| it.suite());
        let protection = match suite {
            Some(CipherSuite::TLS13_AES_128_GCM_SHA256) => Protection::Aes128Gcm,
            _ => Protection::ChaCha20Poly1305,
        };
        let seals = Seals::new(protection, secret, salt, self.role);
        Ok((seals.expect("both protect"), key))
    }
}

/// Carries a handshake out over a connection, of which nothing more is read.
///
/// # Errors
/// If the other end is another one than expected, breaks the rules, or is silent for too long.
pub(crate) fn meet(
    mut own: Handshake,
    line: &mut (impl Read + Write),
) -> Result<(Seals, PublicKey), Refusal> {
    meet_with(&mut own, line)?;
    own.finish()
}

/// The same; the handshake can be asked about it.
///
/// # Errors
/// As [`meet`].
pub(crate) fn meet_with(
    own: &mut Handshake,
    line: &mut (impl Read + Write),
) -> Result<(), Refusal> {
    loop {
        line.write_all(&own.output())?;
        let wanted = own.wants();
        if wanted == 0 {
            return Ok(());
        }
        let mut bytes = vec![0; wanted];
        line.read_exact(&mut bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                io::Error::new(error.kind(), "the connection ended within the handshake")
            }
            _ => error,
        })?;
        if let Err(refusal) = own.hear(&bytes) {
            // It hears why, if it still listens.
            let _ = line.write_all(&own.output());
            return Err(refusal);
        }
    }
}

fn no_key() -> Error {
    Error::NoCertificatesPresented
}

fn not_read(error: &io::Error) -> Error {
    Error::General(error.to_string())
}

/// The key that an end has shown instead of the expected one travels through rustls.
fn of_rustls(error: Error) -> Refusal {
    if let Error::InvalidCertificate(CertificateError::Other(other)) = &error
        && let Some(Unexpected(key)) = other.0.downcast_ref::<Unexpected>()
    {
        return Refusal::OtherKey(*key);
    }
    Refusal::Broken(error)
}

/// The key of an end that is not the expected one.
#[derive(Debug, ThisError)]
#[error("unexpected key {0}")]
struct Unexpected(PublicKey);

/// The least that is needed of what rustls offers: less to attack, and a smaller program.
fn provider() -> CryptoProvider {
    // A host without instructions for AES does not offer it.
    let suites = [TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256];
    CryptoProvider {
        cipher_suites: suites[usize::from(!has_aes())..].to_vec(),
        kx_groups: vec![X25519],
        signature_verification_algorithms: WebPkiSupportedAlgorithms { all: &[], mapping: &[] },
        secure_random: &Random,
        key_provider: &NoKeys,
    }
}

#[derive(Debug)]
struct Random;

impl SecureRandom for Random {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        fill_random(bytes).map_err(|_| GetRandomFailed)
    }
}

/// Keys come from [`KeyPair`] only.
#[derive(Debug)]
struct NoKeys;

impl KeyProvider for NoKeys {
    fn load_private_key(&self, _: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        Err(Error::General("keys are not loaded here".to_owned()))
    }
}

fn certified(own: &KeyPair) -> CertifiedKey {
    let spki = [&SPKI[..], &own.public().0].concat();
    CertifiedKey::new(vec![spki.into()], Arc::new(own.clone()))
}

impl SigningKey for KeyPair {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let is_offered = offered.contains(&SignatureScheme::ED25519);
        is_offered.then(|| Box::new(self.clone()) as Box<dyn Signer>)
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ED25519
    }
}

impl Signer for KeyPair {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(Self::sign(self, message))
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ED25519
    }
}

/// The key in a `SubjectPublicKeyInfo`.
fn public_key(spki: &CertificateDer<'_>) -> Option<PublicKey> {
    let key: [u8; KEY_BYTES] = spki.strip_prefix(&SPKI)?.try_into().ok()?;
    Some(PublicKey(key))
}

/// Checks the key of the other end: it has to be this one, or any whose private part it has.
#[derive(Debug)]
struct Expected(Option<PublicKey>);

impl Expected {
    fn check(&self, spki: &CertificateDer<'_>) -> Result<(), Error> {
        let key = public_key(spki).ok_or(CertificateError::BadEncoding)?;
        if self.0.is_none_or(|expected| expected == key) {
            return Ok(());
        }
        let other = rustls::OtherError(Arc::new(Unexpected(key)));
        Err(CertificateError::Other(other).into())
    }
}

fn check_signature(
    message: &[u8],
    spki: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let key = public_key(spki).ok_or(CertificateError::BadEncoding)?;
    let is_ours = signed.scheme == SignatureScheme::ED25519;
    let verified = UnparsedPublicKey::new(&ED25519, key.0).verify(message, signed.signature());
    match verified {
        Ok(()) if is_ours => Ok(HandshakeSignatureValid::assertion()),
        _ => Err(CertificateError::BadSignature.into()),
    }
}

fn no_older_version() -> Error {
    Error::General("TLS 1.2 is not spoken here".to_owned())
}

/// Methods that the traits for the keys of servers and of clients have in common.
macro_rules! verifies_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(no_older_version())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            spki: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            check_signature(message, spki, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for Expected {
    fn verify_server_cert(
        &self,
        spki: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(spki).map(|()| ServerCertVerified::assertion())
    }

    verifies_signatures!();
}

impl ClientCertVerifier for Expected {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        spki: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(spki).map(|()| ClientCertVerified::assertion())
    }

    verifies_signatures!();
}

#[cfg(test)]
mod tests;
