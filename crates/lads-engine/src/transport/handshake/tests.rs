use super::*;
use crate::transport::tcp::socket_pair;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};

fn key(seed: u8) -> KeyPair {
    KeyPair::from_seed(&[seed; KEY_BYTES])
}

fn client(expected: u8, purpose: Purpose) -> Handshake {
    Handshake::client(&key(1), key(expected).public(), purpose).unwrap()
}

fn server() -> Handshake {
    Handshake::server(&Listening::new(&key(2), &[Purpose::Transfer]).unwrap()).unwrap()
}

/// Lets one end hear all that the other one says; returns whether it said anything.
fn pass(
    from: &mut Handshake,
    to: &mut Handshake,
    change: &mut impl FnMut(&mut Vec<u8>),
) -> Result<bool, Refusal> {
    let mut said = from.output();
    let has_said = !said.is_empty();
    change(&mut said);
    let mut said = &said[..];
    while !said.is_empty() {
        let wanted = to.wants().min(said.len());
        if wanted == 0 {
            return Err(Refusal::TooLong);
        }
        to.hear(&said[..wanted])?;
        said = &said[wanted..];
    }
    Ok(has_said)
}

/// Lets both speak until both are done; `change` sees all bytes.
fn speak(
    client: &mut Handshake,
    server: &mut Handshake,
    mut change: impl FnMut(&mut Vec<u8>),
) -> Result<(), Refusal> {
    while pass(client, server, &mut change)? | pass(server, client, &mut change)? {}
    Ok(())
}

fn sent(seals: &mut Seals, bytes: &[u8]) -> VecDeque<u8> {
    let mut line = VecDeque::new();
    let write = |bytes: &[u8]| {
        line.extend(bytes);
        Ok(())
    };
    seals.sealer.write(&[IoSlice::new(bytes)], write).unwrap();
    line
}

fn received(seals: &mut Seals, mut line: VecDeque<u8>) -> io::Result<Vec<u8>> {
    let mut bytes = [0; 64];
    let read = |to: &mut [IoSliceMut<'_>]| line.read_vectored(to);
    let count = seals.opener.read(&mut bytes, read)?;
    Ok(bytes[..count].to_vec())
}

#[test]
fn both_ends_know_each_other_and_have_the_same_secret() {
    let (mut client, mut server) = (client(2, Purpose::Transfer), server());
    speak(&mut client, &mut server, |_| {}).unwrap();
    assert_eq!((client.wants(), server.wants()), (0, 0));
    let (mut at_client, its_server) = client.finish().unwrap();
    let (mut at_server, its_client) = server.finish().unwrap();
    assert_eq!((its_server, its_client), (key(2).public(), key(1).public()));
    let there = sent(&mut at_client, b"there");
    assert_eq!(received(&mut at_server, there).unwrap(), b"there");
    let back = sent(&mut at_server, b"back");
    assert_eq!(received(&mut at_client, back).unwrap(), b"back");
    let own = sent(&mut at_client, b"there");
    assert!(received(&mut at_client, own).is_err(), "it is no record of the server");
}

#[test]
fn each_handshake_has_another_secret() {
    let lines = [0, 1].map(|_| {
        let (mut client, mut server) = (client(2, Purpose::Transfer), server());
        speak(&mut client, &mut server, |_| {}).unwrap();
        sent(&mut client.finish().unwrap().0, b"there")
    });
    assert_ne!(lines[0], lines[1]);
}

#[test]
fn a_server_with_another_key_is_refused_and_named() {
    let (mut client, mut server) = (client(3, Purpose::Transfer), server());
    let refusal = speak(&mut client, &mut server, |_| {}).unwrap_err();
    assert!(matches!(refusal, Refusal::OtherKey(other) if other == key(2).public()), "{refusal}");
    // The server is told.
    let told = pass(&mut client, &mut server, &mut |_| {});
    assert!(matches!(told, Err(Refusal::Broken(Error::AlertReceived(_)))), "{told:?}");
}

#[test]
fn a_connection_for_something_else_is_refused() {
    let (mut client, mut server) = (client(2, Purpose::Files), server());
    let refusal = speak(&mut client, &mut server, |_| {}).unwrap_err();
    assert!(matches!(refusal, Refusal::Broken(_)), "{refusal}");
}

#[test]
fn who_has_no_private_key_is_refused() {
    // It shows the key of another one, and signs with its own.
    #[derive(Debug)]
    struct Liar;
    impl SigningKey for Liar {
        fn choose_scheme(&self, _: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
            Some(Box::new(key(9)))
        }
        fn algorithm(&self) -> SignatureAlgorithm {
            SignatureAlgorithm::ED25519
        }
    }
    let spki = [&SPKI[..], &key(1).public().0].concat();
    let lie = CertifiedKey::new(vec![spki.into()], Arc::new(Liar));
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Expected(None)))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::new(lie))));
    config.alpn_protocols = vec![Purpose::Transfer.name()];
    let name = ServerName::try_from("lads").unwrap();
    let liar = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut liar = Handshake::new(liar.into(), Role::Connects);
    let refusal = speak(&mut liar, &mut server(), |_| {}).unwrap_err();
    assert!(refusal.to_string().contains("BadSignature"), "{refusal}");
}

#[test]
fn a_changed_byte_never_leads_to_a_connection() {
    let (mut client_, mut server_) = (client(2, Purpose::Transfer), server());
    let mut total = 0;
    speak(&mut client_, &mut server_, |said| total += said.len()).unwrap();
    assert!(total > 500, "{total}");
    for at in 0..total {
        let (mut client, mut server) = (client(2, Purpose::Transfer), server());
        let mut passed = 0;
        let spoken = speak(&mut client, &mut server, |said| {
            if let Some(byte) = at.checked_sub(passed).and_then(|at| said.get_mut(at)) {
                *byte ^= 1 << (at % 8);
            }
            passed += said.len();
        });
        let (Ok(()), Ok((mut client, _)), Ok((mut server, _))) =
            (spoken, client.finish(), server.finish())
        else {
            continue;
        };
        // The version in the head of a record protects nothing, and is not looked at (RFC 8446,
        // section 5.1): both ends have the same secret.
        let line = sent(&mut client, b"there");
        assert_eq!(received(&mut server, line).unwrap(), b"there", "byte {at}");
    }
}

#[test]
fn strangers_are_refused_before_they_have_sent_much() {
    for beginning in [&b"GET / HTTP/1.1\r\n"[..], b"SSH-2.0-OpenSSH_9.2\r\n", &[0; 32], &[255; 32]]
    {
        let (mut server, mut sent) = (server(), 0);
        let refused = beginning.iter().cycle().try_for_each(|&byte| {
            sent += 1;
            server.hear(&[byte])
        });
        assert!(refused.is_err() && sent <= BYTES_MAX + 1, "{beginning:?} {sent}");
    }
}

#[test]
fn whoever_sends_only_changes_of_cipher_is_refused() {
    let mut server = server();
    let mut client = client(2, Purpose::Transfer);
    pass(&mut client, &mut server, &mut |_| {}).unwrap();
    let change = [20, 3, 3, 0, 1, 1];
    let mut all = std::iter::repeat_n(change, BYTES_MAX);
    assert!(
        all.try_for_each(|it| {
            server.hear(&it[..HEAD_BYTES])?;
            server.hear(&it[HEAD_BYTES..])
        })
        .is_err()
    );
}

#[test]
fn an_unfinished_handshake_gives_no_connection() {
    let (mut client, mut server) = (client(2, Purpose::Transfer), server());
    pass(&mut client, &mut server, &mut |_| {}).unwrap();
    assert!(client.finish().is_err());
    assert!(server.finish().is_err());
}

#[test]
fn a_handshake_reads_nothing_of_what_follows() {
    let (ours, theirs) = socket_pair().unwrap();
    let following = std::thread::spawn(move || {
        let mut line = File::from(theirs);
        let (mut seals, _) = meet(client(2, Purpose::Transfer), &mut line).unwrap();
        line.write_all(&Vec::from(sent(&mut seals, b"at once"))).unwrap();
    });
    let mut line = File::from(ours);
    let (mut seals, peer) = meet(server(), &mut line).unwrap();
    following.join().unwrap();
    let mut rest = Vec::new();
    line.read_to_end(&mut rest).unwrap();
    assert_eq!(peer, key(1).public());
    assert_eq!(received(&mut seals, rest.into()).unwrap(), b"at once");
}

proptest! {
    /// Whatever a stranger sends, in the place of any flight, there is no panic, no connection, and
    /// little that is kept.
    #[test]
    fn strangers_get_no_connection(
        begins in any::<bool>(),
        said in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..600),
                (20..24_u8, prop::collection::vec(any::<u8>(), 0..600)).prop_map(|(kind, body)| {
                    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
                    [&[kind, 3, 3][..], &length, &body].concat()
                }),
            ],
            1..6,
        ),
    ) {
        let (mut client, mut server) = (client(2, Purpose::Transfer), server());
        if begins {
            pass(&mut client, &mut server, &mut |_| {}).unwrap();
        }
        let mut refused = [false; 2];
        for some in said {
            for (ends, is_refused) in [&mut client, &mut server].into_iter().zip(&mut refused) {
                let mut some = if *is_refused { &[] } else { &some[..] };
                while !some.is_empty() {
                    let wanted = ends.wants().min(some.len());
                    prop_assert!(wanted > 0, "it takes no stranger's bytes for the end");
                    *is_refused = ends.hear(&some[..wanted]).is_err();
                    if *is_refused {
                        break;
                    }
                    some = &some[wanted..];
                }
                prop_assert!(ends.incoming.len() <= RECORD_BYTES_MAX + HEAD_BYTES);
            }
        }
        prop_assert!(client.finish().is_err() && server.finish().is_err());
    }
}
