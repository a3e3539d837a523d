use super::super::super::Transport as _;
use super::*;
use crate::stop::StopFlag;
use lads_tried::Stopwatch;
use std::os::unix::net::UnixStream;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// The numbers of all streams.
const ALL: Range<usize> = 0..usize::MAX;
const SEALED: Protection = Protection::Aes128Gcm;

/// What a connection says first, and what is answered.
pub(crate) fn opening(
    stream: u16,
    token: &[u8; 32],
    salt: &[u8; SALT_BYTES],
) -> ([u8; OPENING_BYTES], u8) {
    (super::opening(stream, (token, salt)), ACCEPTED)
}

/// A listener for this many streams on loopback, and where it is.
fn listener(count: u16) -> (Listener, SocketAddr) {
    let stop = StopFlag::new();
    let listener = Listener::open(count, None, true, &Patience::new(&stop, SECOND)).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, listener.port));
    (listener, address)
}

/// Listens in a thread of its own, with a control channel that stays open. Returns when all streams
/// are open.
fn accept(listener: Listener) -> std::thread::JoinHandle<Result<(), Fatal>> {
    std::thread::spawn(move || {
        let stop = StopFlag::new();
        let (control, _open) = UnixStream::pair().unwrap();
        let streams = streams(&listener);
        listener
            .accept_all((&streams, SEALED), None, &Patience::new(&stop, 30 * SECOND), &control)
            .map(drop)
    })
}

fn streams(listener: &Listener) -> Tcp {
    Tcp::opening(listener.secrets.len(), 30 * SECOND)
}

/// Connects, shows a token, and waits until it is accepted.
fn connect_whole(
    address: SocketAddr,
    index: u16,
    secret: &Secret,
    patience: &Patience<'_>,
) -> io::Result<Line> {
    let line = connect(address, index, (secret, Protection::Aes128Gcm), patience)?;
    await_answer(line.socket(), patience)?;
    Ok(line)
}

#[test]
fn each_token_is_good_for_one_connection() {
    let (listener, address) = listener(2);
    let tokens = listener.secrets.clone();
    let door = accept(listener);
    let stop = StopFlag::new();
    let patience = Patience::new(&stop, 10 * SECOND);
    let first = connect_whole(address, 0, &tokens[0], &patience).unwrap();
    for (index, token) in [(0, &tokens[0]), (1, &tokens[0]), (9, &tokens[1]), (1, &Secret([0; 32]))]
    {
        connect_whole(address, index, token, &patience).unwrap_err();
    }
    let second = connect_whole(address, 1, &tokens[1], &patience).unwrap();
    door.join().unwrap().unwrap();
    drop((first, second));
}

#[test]
fn whoever_says_nothing_makes_room_for_who_does() {
    let (listener, address) = listener(1);
    let token = listener.secrets[0].clone();
    let door = accept(listener);
    // Held open, all of them.
    let silent: Vec<_> =
        (0..3 * UNDECIDED_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
    let stop = StopFlag::new();
    connect_whole(address, 0, &token, &Patience::new(&stop, 10 * SECOND)).unwrap();
    door.join().unwrap().unwrap();
    drop(silent);
}

#[test]
fn no_more_than_so_many_strangers_are_looked_at() {
    let (listener, address) = listener(1);
    let streams = streams(&listener);
    let mut door = Door::new(listener, &streams, SEALED).unwrap();
    let strangers: Vec<_> =
        (0..2 * UNDECIDED_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
    for _ in 0..3 {
        door.look(Instant::now(), &ALL, |_| ());
        assert_eq!(door.lobby.undecided.len(), UNDECIDED_MAX);
    }
    // The last to come are those who stay.
    let last = strangers.last().unwrap().local_addr().unwrap();
    let kept = door.lobby.undecided.iter().map(|visitor| visitor.stream.peer_addr().unwrap());
    assert!(kept.collect::<Vec<_>>().contains(&last));
    door.look(Instant::now() + TOKEN_DEADLINE, &ALL, |_| ());
    assert!(door.lobby.undecided.is_empty(), "{} are late", door.lobby.undecided.len());
}

#[test]
fn garbage_is_sent_away_at_its_first_byte() {
    let (listener, address) = listener(1);
    let streams = streams(&listener);
    let mut door = Door::new(listener, &streams, SEALED).unwrap();
    let mut stranger = TcpStream::connect(address).unwrap();
    stranger.write_all(b"G").unwrap();
    stranger.set_read_timeout(Some(10 * SECOND)).unwrap();
    let until = Instant::now() + 10 * SECOND;
    // Its byte may take a moment.
    while !matches!(stranger.take_error(), Ok(Some(_)) | Err(_)) && Instant::now() < until {
        door.look(Instant::now(), &ALL, |_| ());
        if door.lobby.undecided.is_empty() {
            break;
        }
    }
    assert_ne!(stranger.read(&mut [0]).unwrap_or(0), 1);
    assert!(door.lobby.undecided.is_empty());
}

#[test]
fn whoever_listens_ends_when_the_other_end_is_gone() {
    let (listener, _) = listener(1);
    let stop = StopFlag::new();
    let (control, other) = UnixStream::pair().unwrap();
    drop(other);
    let started = Stopwatch::start();
    let (streams, patience) = (streams(&listener), Patience::new(&stop, 30 * SECOND));
    let fatal = listener.accept_all((&streams, SEALED), None, &patience, &control).unwrap_err();
    assert!(fatal.text.contains("disconnected"), "{fatal:?}");
    assert!(started.elapsed() < 10 * SECOND);
}

/// The first of the streams, but no other one, has less time if the data can go another way.
#[test]
fn the_first_stream_has_less_time_if_there_is_a_tunnel() {
    let contact = Some(Duration::from_millis(50));
    let (stop, (control, _open)) = (StopFlag::new(), UnixStream::pair().unwrap());
    let patience = Patience::new(&stop, SECOND);
    let (none_comes, _) = listener(2);
    let of_none = streams(&none_comes);
    let ended = none_comes.accept_all((&of_none, SEALED), contact, &patience, &control);
    let fatal = ended.unwrap_err();
    assert!(fatal.is_timeout && fatal.blocked.unwrap().contains("do not arrive"));

    let (one_comes, address) = listener(2);
    let (Secret(secret), of_one) = (one_comes.secrets[1].clone(), streams(&one_comes));
    let mut first = TcpStream::connect(address).unwrap();
    first.write_all(&opening(1, &token(&secret), &[9; SALT_BYTES]).0).unwrap();
    let patience = Patience::new(&stop, SECOND);
    let ended = one_comes.accept_all((&of_one, SEALED), contact, &patience, &control);
    let fatal = ended.unwrap_err();
    assert!(fatal.blocked.is_none() && fatal.text.contains("no data connection arrived"));
}

#[test]
fn what_the_other_end_says_too_early_waits() {
    let (listener, address) = listener(1);
    let token = listener.secrets[0].clone();
    let (control, mut other) = UnixStream::pair().unwrap();
    other.write_all(b"early").unwrap();
    let door = std::thread::spawn(move || {
        let stop = StopFlag::new();
        let (streams, patience) = (streams(&listener), Patience::new(&stop, 30 * SECOND));
        listener
            .accept_all((&streams, SEALED), None, &patience, &control)
            .map(drop)
            .map(|()| control)
    });
    let stop = StopFlag::new();
    connect_whole(address, 0, &token, &Patience::new(&stop, 10 * SECOND)).unwrap();
    let mut control = door.join().unwrap().unwrap();
    let mut said = [0; 5];
    control.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"early");
}

#[test]
fn what_comes_right_after_a_token_is_the_first_frame() {
    let (listener, address) = listener(1);
    let (Secret(secret), streams) = (listener.secrets[0].clone(), streams(&listener));
    let mut early = TcpStream::connect(address).unwrap();
    let (said, _) = opening(0, &token(&secret), &[9; SALT_BYTES]);
    early.write_all(&[&said[..], b"first"].concat()).unwrap();
    let (stop, (control, _open)) = (StopFlag::new(), UnixStream::pair().unwrap());
    let patience = Patience::new(&stop, 30 * SECOND);
    listener.accept_all((&streams, SEALED), None, &patience, &control).unwrap();
    let (mut answer, mut first) = ([0], [0; 5]);
    early.read_exact(&mut answer).unwrap();
    assert_eq!(answer[0], ACCEPTED);
    let line = streams.streams[0].line().unwrap();
    assert_eq!(rustix::io::read(&line.socket, &mut first).unwrap(), 5);
    assert_eq!(&first, b"first");
}

#[test]
fn a_door_that_nobody_needs_any_more_closes() {
    let (listener, address) = listener(2);
    let streams = streams(&listener);
    let (stop, (control, _open)) = (StopFlag::new(), UnixStream::pair().unwrap());
    let patience = Patience::new(&stop, 30 * SECOND);
    std::thread::scope(|scope| {
        let door =
            scope.spawn(|| listener.accept_all((&streams, SEALED), None, &patience, &control));
        streams.end(StreamId(0));
        streams.end(StreamId(1));
        drop(door.join().unwrap().unwrap());
    });
    TcpStream::connect(address).unwrap_err();
}

#[test]
fn streams_that_may_come_or_not_come_after_those_that_are_needed() {
    let (listener, address) = listener(5);
    let (tokens, streams) = (listener.secrets.clone(), Tcp::opening(2, 30 * SECOND).and_more(3));
    let (stop, (control, _open)) = (StopFlag::new(), UnixStream::pair().unwrap());
    let patience = Patience::new(&stop, 30 * SECOND);
    let show = |index: u16| connect_whole(address, index, &tokens[usize::from(index)], &patience);
    let there = || (0..5).filter(|&id| streams.is_there(StreamId(id))).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        let door = scope
            .spawn(|| listener.accept_all((&streams, SEALED), None, &patience, &control).unwrap());
        show(2).unwrap_err();
        let _needed = [show(1).unwrap(), show(0).unwrap()];
        let door = door.join().unwrap();
        assert_eq!(there(), [0, 1]);
        let mut came = Vec::new();
        let more = scope.spawn(|| {
            door.accept_more(2, &patience, &control, |id| came.push(id));
            came
        });
        for index in [4, 0] {
            show(index).unwrap_err();
        }
        let _more = [show(3).unwrap(), show(2).unwrap()];
        assert_eq!(more.join().unwrap(), [StreamId(3), StreamId(2)]);
    });
    assert_eq!(there(), [0, 1, 2, 3]);
    TcpStream::connect(address).unwrap_err();
}

#[test]
fn nobody_waits_for_ever_for_streams_that_may_come_or_not() {
    let (stop, (control, other)) = (StopFlag::new(), UnixStream::pair().unwrap());
    let wait = |limit: Duration, streams: &Tcp| {
        let (listener, _) = listener(1);
        let door = Door::new(listener, streams, SEALED).unwrap();
        let (patience, since) = (Patience::new(&stop, limit), Stopwatch::start());
        door.accept_more(1, &patience, &control, |_| panic!("nobody comes"));
        since.elapsed()
    };
    let streams = Tcp::opening(0, 30 * SECOND).and_more(1);
    assert!(wait(SECOND / 10, &streams) < 20 * SECOND);
    let ended = Tcp::opening(0, 30 * SECOND).and_more(1);
    ended.end(StreamId(0));
    assert!(wait(30 * SECOND, &ended) < 20 * SECOND);
    assert!(!ended.is_there(StreamId(0)));
    drop(other);
    assert!(wait(30 * SECOND, &streams) < 20 * SECOND);
}
