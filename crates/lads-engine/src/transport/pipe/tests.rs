use super::super::contract::{Granted, pipes};
use super::*;
use lads_core::limits::PACKET_BYTES_MAX;
use lads_core::packet::{HEAD_BYTES, Packet};
use std::io::{Read, Write};
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// A sink with this number of streams, what is written to it, and what it writes.
fn sink(count: u16) -> (Arc<dyn Transport>, Channel, File, File) {
    let ((input, to_sink), (from_sink, output)) = (pipes(), pipes());
    let (sink, channel) = open(input, output, count, Side::Sink);
    (sink, channel, to_sink, from_sink)
}

/// A packet with these bytes, whatever its head says of them.
fn packet(channel: lads_core::packet::Channel, bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap();
    [&Packet { channel, bytes: length }.head()[..], bytes].concat()
}

fn message(bytes: &[u8]) -> Vec<u8> {
    packet(lads_core::packet::Channel::Messages, bytes)
}

/// What a sink that is sent these bytes tells whoever listens.
fn complaint(bytes: &[u8]) -> String {
    let (_sink, mut channel, mut to_sink, _from_sink) = sink(2);
    // It may read no further than to what it does not like.
    let _ = to_sink.write_all(bytes);
    drop(to_sink);
    channel.input.read(&mut [0]).map_or_else(|error| error.to_string(), |count| count.to_string())
}

/// The next packet of what an end writes.
fn next_packet(from: &mut File) -> (Packet, Vec<u8>) {
    let mut head = [0; HEAD_BYTES];
    from.read_exact(&mut head).unwrap();
    let packet = Packet::take(&head, u16::MAX).unwrap();
    let mut bytes = vec![0; packet.bytes as usize];
    from.read_exact(&mut bytes).unwrap();
    (packet, bytes)
}

#[track_caller]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn messages_pass_both_ways_beside_frames() {
    let ((input, to_sink), (from_sink, output)) = (pipes(), pipes());
    let (source, of_source) = open(from_sink, to_sink, 1, Side::Source);
    let (sink, mut of_sink) = open(input, output, 1, Side::Sink);
    let granted = Granted::new(4);
    let mut receiver = sink.receiver(StreamId(0), granted);
    let said: Vec<u8> = (0..=u8::MAX).cycle().take(3 * MIB).collect();
    let Channel { input: mut heard_by_source, output: mut to_sink } = of_source;
    let expected = said.clone();
    let speaking = std::thread::spawn(move || {
        to_sink.write_all(&said).unwrap();
        drop(to_sink);
    });
    let mut heard = Vec::new();
    of_sink.input.read_to_end(&mut heard).unwrap();
    assert!(heard == expected);
    speaking.join().unwrap();
    of_sink.output.write_all(b"and back").unwrap();
    drop(of_sink.output);
    heard.clear();
    heard_by_source.read_to_end(&mut heard).unwrap();
    assert_eq!(heard, b"and back");
    assert!(!receiver.next_frame(&mut super::super::Frame::default()).unwrap());
    drop(source);
}

#[test]
fn a_message_waits_for_one_packet_of_a_frame_and_for_what_is_in_the_pipe() {
    const MESSAGES: usize = 32;
    let (mut line, to_sink) = pipes();
    let pipe =
        Arc::new(Pipe { outgoing: Outgoing::new(to_sink), streams: vec![Stream::default()] });
    let (sender, frame) = (Arc::clone(&pipe), vec![7; 32 * MIB]);
    let sending = std::thread::spawn(move || sender.send(StreamId(0), &mut [IoSlice::new(&frame)]));
    let mut writer = MessageWriter { pipe: Arc::clone(&pipe) };
    let ((go, goes), written) = (mpsc::channel::<()>(), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&written);
    let speaking = std::thread::spawn(move || {
        for () in goes {
            writer.write_all(b"a message").unwrap();
            counter.fetch_add(1, Ordering::SeqCst);
        }
        writer
    });
    for number in 0..MESSAGES {
        go.send(()).unwrap();
        wait_until("it waits, or is in the pipe", || {
            pipe.outgoing.is_message_waiting() || written.load(Ordering::SeqCst) > number
        });
        let packets_before = std::iter::repeat_with(|| next_packet(&mut line).0.channel)
            .take_while(|channel| *channel != lads_core::packet::Channel::Messages)
            .count();
        // What the pipe held, and the one that was being written.
        assert!(packets_before <= 3, "{packets_before} packets came before message {number}");
        // Until then it counts as waiting, and the next would not be waited for.
        wait_until("its thread knows that it is written", || {
            written.load(Ordering::SeqCst) > number
        });
    }
    drop(go);
    let writer = speaking.join().unwrap();
    drop(line);
    sending.join().unwrap().unwrap_err();
    drop(writer);
}

#[test]
fn a_message_goes_before_a_frame_that_waits_longer() {
    for _ in 0..20 {
        let (mut line, to_sink) = pipes();
        let pipe =
            Arc::new(Pipe { outgoing: Outgoing::new(to_sink), streams: vec![Stream::default()] });
        let held = pipe.outgoing.lock();
        let sender = Arc::clone(&pipe);
        let sending =
            std::thread::spawn(move || sender.send(StreamId(0), &mut [IoSlice::new(&[7; 100])]));
        wait_until("the frame waits", || pipe.outgoing.is_frame_waiting());
        let mut writer = MessageWriter { pipe: Arc::clone(&pipe) };
        let speaking = std::thread::spawn(move || {
            writer.write_all(b"a message").unwrap();
            writer
        });
        wait_until("the message waits", || pipe.outgoing.is_message_waiting());
        drop(held);
        assert_eq!(next_packet(&mut line).0.channel, lads_core::packet::Channel::Messages);
        sending.join().unwrap().unwrap();
        drop(speaking.join().unwrap());
    }
}

#[test]
fn messages_that_nobody_reads_do_not_fill_memory() {
    const SENT_BYTES: usize = 4 * MIB;
    let ((input, mut to_sink), (_from_sink, output)) = (pipes(), pipes());
    let pipe = Arc::new(Pipe { outgoing: Outgoing::new(output), streams: Vec::new() });
    let messages = incoming::start(Input::Plain(input), pipe, 1);
    let writing = std::thread::spawn(move || {
        let one = message(&[1; PACKET_BYTES_MAX as usize]);
        (0..SENT_BYTES / PACKET_BYTES_MAX as usize).try_for_each(|_| to_sink.write_all(&one))
    });
    wait_until("they come", || messages.waiting_bytes() > MESSAGES_BYTES_MAX);
    let mut reader = MessageReader { messages: Arc::clone(&messages) };
    let (mut read, mut some) = (0, [0; 4096]);
    while read < SENT_BYTES {
        std::thread::yield_now();
        let waiting = messages.waiting_bytes();
        assert!(waiting <= MESSAGES_BYTES_MAX + PACKET_BYTES_MAX as usize, "{waiting} bytes");
        read += reader.read(&mut some).unwrap();
    }
    writing.join().unwrap().unwrap();
}

#[test]
fn messages_that_nobody_wants_any_more_hold_up_nothing() {
    let (_sink, channel, mut to_sink, _from_sink) = sink(1);
    drop(channel);
    for _ in 0..64 {
        to_sink.write_all(&message(&[1; PACKET_BYTES_MAX as usize])).unwrap();
    }
}

#[test]
fn what_is_no_packet_ends_the_line_and_is_told() {
    let stream = |number| lads_core::packet::Channel::Stream(StreamId(number));
    assert!(complaint(b"Welcome to dtn2!").contains("out of sync"));
    assert!(complaint(&packet(stream(2), &[0])).contains("data stream 2, which does not exist"));
    assert!(complaint(&packet(stream(65_000), &[0])).contains("data stream 65000"));
    assert!(complaint(&message(&[])).contains("0 bytes"));
    assert!(complaint(&message(&vec![0; 65_537])).contains("65537 bytes"));
    for end in [0, 1, 8, 10] {
        assert_eq!(complaint(&message(b"half")[..end]), "0", "an end is an end");
    }
}

#[test]
fn a_source_takes_no_frames() {
    let ((input, mut to_source), (_from_source, output)) = (pipes(), pipes());
    let (_source, mut channel) = open(input, output, 4, Side::Source);
    let stream = lads_core::packet::Channel::Stream(StreamId(0));
    to_source.write_all(&packet(stream, &[1; 64])).unwrap();
    let error = channel.input.read(&mut [0]).unwrap_err().to_string();
    assert!(error.contains("data stream 0, which does not exist"), "{error}");
}

#[test]
fn a_stream_of_garbage_costs_that_stream_and_no_message() {
    let (sink, mut channel, mut to_sink, _from_sink) = sink(2);
    let granted = Granted::new(4);
    let mut receiver = sink.receiver(StreamId(0), granted);
    let stream = lads_core::packet::Channel::Stream(StreamId(0));
    for bytes in [packet(stream, &[0xa5; 4096]), packet(stream, &[0xa5; 9]), message(b"well")] {
        to_sink.write_all(&bytes).unwrap();
    }
    assert!(!receiver.next_frame(&mut super::super::Frame::default()).unwrap());
    let mut heard = [0; 4];
    channel.input.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"well");
}
