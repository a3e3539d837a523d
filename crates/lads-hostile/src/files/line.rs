//! Connections of remote files: the handshake and the records, made once more from
//! `docs/protocol.md`, so that a mistake in the one of LADS is not made here, too.
//!
//! Whoever lies does so on a socket within this process ([`UnixStream`]). Threads carry its bytes.

use ring::aead::{
    AES_128_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, Tag, UnboundKey,
};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::crypto::{CryptoProvider, ring as of_ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, Connection, DigitallySignedStruct,
    DistinguishedName, Error, ServerConfig, ServerConnection, SignatureScheme,
};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

const OF_SERVER: &str = "lads 2026-11-29 key of a server of remote files";
const OF_CLIENTS: &str = "lads 2026-11-29 key of the clients of a server of remote files";
const CONNECTS: &str = "lads 2026-11-29 records of who connects";
const LISTENS: &str = "lads 2026-11-29 records of who listens";

/// The most bytes of a record.
const RECORD_BYTES: usize = 64 << 10;

/// Makes the handshake of a server with this token. `None` if the client breaks it off, or has
/// another token.
///
/// # Panics
/// If this host has no sockets left.
#[must_use]
pub fn as_server(mut socket: TcpStream, token: &[u8; 32]) -> Option<UnixStream> {
    let keys = AlwaysResolvesServerRawPublicKeys::new(certified(&seed(OF_SERVER, token)));
    let any = Arc::new(AnyKey(of_ring::default_provider()));
    let mut config = ServerConfig::builder_with_provider(Arc::new(of_ring::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_client_cert_verifier(any)
        .with_cert_resolver(Arc::new(keys));
    config.alpn_protocols = vec![b"lads-files".to_vec()];
    config.send_tls13_tickets = 0;
    let tls = ServerConnection::new(Arc::new(config)).unwrap();
    let tls = met(tls.into(), &mut socket, &seed(OF_CLIENTS, token))?;
    Some(carried(socket, key(&tls, LISTENS), key(&tls, CONNECTS)))
}

/// Makes the handshake of a client with this token. `None` if the server breaks it off, or has
/// another token.
///
/// # Panics
/// If this host has no sockets left.
#[must_use]
pub fn as_client(mut socket: TcpStream, token: &[u8; 32]) -> Option<UnixStream> {
    let keys = AlwaysResolvesClientRawPublicKeys::new(certified(&seed(OF_CLIENTS, token)));
    let any = Arc::new(AnyKey(of_ring::default_provider()));
    let mut config = ClientConfig::builder_with_provider(Arc::new(of_ring::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(any)
        .with_client_cert_resolver(Arc::new(keys));
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    config.alpn_protocols = vec![b"lads-files".to_vec()];
    let tls = ClientConnection::new(Arc::new(config), ServerName::try_from("it").unwrap());
    let tls = met(tls.unwrap().into(), &mut socket, &seed(OF_SERVER, token))?;
    Some(carried(socket, key(&tls, CONNECTS), key(&tls, LISTENS)))
}

fn seed(context: &str, token: &[u8; 32]) -> [u8; 32] {
    blake3::derive_key(context, token)
}

/// The public key of a seed, as both ends show it.
fn public(seed: &[u8; 32]) -> CertificateDer<'static> {
    let pair = Ed25519KeyPair::from_seed_unchecked(seed).unwrap();
    let head = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";
    [head, pair.public_key().as_ref()].concat().into()
}

fn certified(seed: &[u8; 32]) -> Arc<CertifiedKey> {
    let head = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
    let private = PrivatePkcs8KeyDer::from([&head[..], seed].concat());
    Arc::new(CertifiedKey::new(vec![public(seed)], any_eddsa_type(&private).unwrap()))
}

/// Makes a handshake with the owner of a key, and reads nothing of what follows.
fn met(mut tls: Connection, socket: &mut TcpStream, other: &[u8; 32]) -> Option<Connection> {
    loop {
        while tls.wants_write() {
            tls.write_tls(socket).ok()?;
        }
        if !tls.is_handshaking() {
            let shown = tls.peer_certificates()?.first()?;
            return (*shown == public(other)).then_some(tls);
        }
        let mut record = vec![0; 5];
        socket.read_exact(&mut record).ok()?;
        record.resize(5 + usize::from(u16::from_be_bytes([record[3], record[4]])), 0);
        socket.read_exact(&mut record[5..]).ok()?;
        let mut rest = &record[..];
        while !rest.is_empty() {
            tls.read_tls(&mut rest).ok()?;
            if tls.process_new_packets().is_err() {
                let _ = tls.write_tls(socket);
                return None;
            }
        }
    }
}

/// The key of a direction.
fn key(tls: &Connection, direction: &str) -> LessSafeKey {
    let exported = tls.export_keying_material([0; 48], b"EXPORTER-lads-records", None).unwrap();
    let secret = blake3::derive_key(direction, &exported);
    let suite = tls.negotiated_cipher_suite().unwrap().suite();
    let (algorithm, context): (&Algorithm, _) = match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => (&AES_128_GCM, "lads 2026-11-29 AES-128-GCM"),
        _ => (&CHACHA20_POLY1305, "lads 2026-11-29 ChaCha20-Poly1305"),
    };
    let key = blake3::derive_key(context, &secret);
    LessSafeKey::new(UnboundKey::new(algorithm, &key[..algorithm.key_len()]).unwrap())
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// A socket whose bytes go over the other one in records.
fn carried(socket: TcpStream, sealing: LessSafeKey, opening: LessSafeKey) -> UnixStream {
    let (own, inner) = UnixStream::pair().unwrap();
    let (mut from, mut to) = (socket.try_clone().unwrap(), inner.try_clone().unwrap());
    std::thread::spawn(move || {
        let mut number = 0;
        while let Some(bytes) = next_record(&mut from, &opening, number)
            && to.write_all(&bytes).is_ok()
        {
            number += 1;
        }
        let _ = to.shutdown(Shutdown::Both);
    });
    let (mut from, mut to) = (inner, socket);
    std::thread::spawn(move || {
        let (mut number, mut bytes) = (0, vec![0; RECORD_BYTES]);
        while let Ok(count) = from.read(&mut bytes)
            && count > 0
        {
            let length = u32::try_from(count).unwrap().to_le_bytes();
            let body = &mut bytes[..count];
            let tag = sealing.seal_in_place_separate_tag(nonce(number), Aad::from(length), body);
            if to.write_all(&[&length, &*body, tag.unwrap().as_ref()].concat()).is_err() {
                break;
            }
            number += 1;
        }
        let _ = to.shutdown(Shutdown::Both);
    });
    own
}

fn next_record(from: &mut TcpStream, key: &LessSafeKey, number: u64) -> Option<Vec<u8>> {
    let (mut length, mut tag) = ([0; 4], [0; 16]);
    from.read_exact(&mut length).ok()?;
    let count = u32::from_le_bytes(length) as usize;
    let mut body = vec![0; Some(count).filter(|count| *count <= RECORD_BYTES)?];
    from.read_exact(&mut body).ok()?;
    from.read_exact(&mut tag).ok()?;
    let (nonce, tag) = (nonce(number), Tag::from(tag));
    key.open_in_place_separate_tag(nonce, Aad::from(length), tag, &mut body, 0..).ok()?;
    Some(body)
}

/// Takes any key whose private part the other end has.
#[derive(Debug)]
struct AnyKey(CryptoProvider);

impl AnyKey {
    fn check(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let (key, own) = (SubjectPublicKeyInfoDer::from(key.as_ref()), &self.0);
        let known = &own.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, signed, known)
    }
}

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        unreachable!("only TLS 1.3 is spoken")
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for AnyKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        unreachable!("only TLS 1.3 is spoken")
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
