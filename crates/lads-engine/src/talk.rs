//! The two threads that talk to the other end: one writes messages, one reads them.

use crate::board::{Board, lock};
use crate::clock::Clock;
use crate::control::MessageReader;
use crate::end::{End, Talks};
use crate::event::{ExitCode, Happening};
use crate::fatal::{Fatal, breach, exit_code_from};
use crate::hub::{Inner, Waiter};
use lads_core::gate::{self, ProtocolError, Reader as NewsReader};
use lads_core::message::Message;
use std::io::{Read, Write};
use std::time::Duration;

/// How many bytes of messages are gathered for one write.
const WRITE_BYTES: usize = 64 << 10;

/// Writes the messages of this end, and a heartbeat if there was none for a while. If the user is
/// at the other end, `board` has what is to be shown there.
pub(crate) fn speak<E: End>(
    end: &E,
    writer: &mut impl Write,
    interval: Duration,
    board: Option<&Board>,
) {
    let hub = end.hub();
    loop {
        let deadline = std::time::Instant::now() + interval;
        let message = hub.wait_for(Waiter::Comm, |inner| {
            let message = inner.messages.pop_front().or_else(|| inner.session.next_message());
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            match message {
                Some(message) => Ok(message),
                None if left.is_zero() => Ok(Message::Heartbeat),
                None => Err(Some(left)),
            }
        });
        let is_over = message.is_none();
        if say(end, writer, message, board).is_err() || is_over {
            return;
        }
    }
}

/// Writes a message together with all others that wait.
fn say<E: End>(
    end: &E,
    writer: &mut impl Write,
    first: Option<Message>,
    board: Option<&Board>,
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let mut next = first;
    let more = || {
        let next = |inner: &mut Inner<E::Session>| {
            inner.messages.pop_front().or_else(|| inner.session.next_message())
        };
        end.hub().with(next)
    };
    while let Some(message) = next.take().or_else(more) {
        let mut message = match message {
            Message::Finished(_) => {
                // After this message, the other end may stop reading.
                for mut told in board.map(Board::take_messages).unwrap_or_default() {
                    gate::cut_news(&mut told);
                    lads_core::message::encode(&told, &mut bytes);
                }
                Message::Finished(end.counters())
            }
            message => message,
        };
        gate::cut_news(&mut message);
        lads_core::message::encode(&message, &mut bytes);
        if bytes.len() >= WRITE_BYTES {
            writer.write_all(&bytes)?;
            bytes.clear();
        }
    }
    let fatal = end.hub().with(|inner| inner.fatal.clone());
    if let Some(fatal) = fatal {
        let mut message = Message::Fatal { code: fatal.code as u8, text: fatal.text };
        gate::cut_news(&mut message);
        lads_core::message::encode(&message, &mut bytes);
    }
    writer.write_all(&bytes)?;
    writer.flush()
}

/// Reads messages until the other end closes the channel.
pub(crate) fn listen<E: End>(
    end: &E,
    reader: &mut MessageReader<Box<dyn Read + Send>>,
    board: &Board,
    clock: Clock,
    peer_host: &str,
    reader_of_news: NewsReader,
) -> Result<(), Fatal> {
    loop {
        board.on_listening(clock.now());
        let Some(message) = reader.next()? else { break };
        board.on_heard();
        if let Err(error) = check(end, &message, reader_of_news) {
            end.hub().fail(breach(&error));
            return Ok(());
        }
        match message {
            Message::Heartbeat => continue,
            Message::Frames(counts) => {
                end.on_frames(&counts);
                continue;
            }
            Message::Progress(counters) => {
                *lock(&board.peer) = counters;
                continue;
            }
            Message::OstBytes(bytes) => {
                board.put_osts(E::SIDE.other(), bytes);
                continue;
            }
            Message::Issues(issues) => {
                // This end has reported its own failures; the other end's copies of them are
                // ignored.
                let theirs = issues.into_iter().filter(|issue| issue.failure.side != E::SIDE);
                theirs.for_each(|issue| board.put_told(Happening::Issue(issue)));
                continue;
            }
            Message::Lines(lines) => {
                lines.into_iter().for_each(|line| board.put_told(Happening::Line(line)));
                continue;
            }
            Message::Notice(text) => {
                board.put_told(Happening::Notice(text));
                continue;
            }
            Message::Fatal { code, text } => {
                let code = exit_code_from(code);
                return Err(Fatal::new(code, text));
            }
            message => take_in(end, board, clock, message)?,
        }
    }
    if end.hub().with(|inner| inner.is_over || inner.session.is_over()) {
        return Ok(());
    }
    let text = format!("the connection to {peer_host} was closed; the same command resumes");
    Err(Fatal::new(ExitCode::Network, text))
}

/// The gate: only possible messages of the other end go further.
fn check<E: End>(end: &E, message: &Message, reader: NewsReader) -> Result<(), ProtocolError> {
    match gate::is_news(message) {
        true => gate::check_news(message, reader),
        false => end.hub().with(|inner| inner.session.check(message)),
    }
}

/// Acts on a message that passed the gate.
fn take_in<E: End>(end: &E, board: &Board, clock: Clock, message: Message) -> Result<(), Fatal> {
    if let Err(fatal) = end.before(&message) {
        end.hub().fail(fatal);
        return Ok(());
    }
    if let Message::StreamEnd { stream, .. } = message {
        end.hub().end_stream(stream);
    }
    let is_last = matches!(message, Message::Finished(_));
    if let Message::Finished(counters) = &message {
        *lock(&board.peer) = counters.clone();
    }
    let now = clock.now();
    let result = end.hub().tell(|inner| inner.session.take_message(now, message));
    if let Err(error) = result {
        end.hub().fail(breach(&error));
    }
    if is_last {
        end.hub().nudge();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Options;
    use crate::setup::Setup;
    use crate::sink::SinkEnd;
    use crate::stream::Streams;
    use lads_core::message::Counters;
    use std::sync::Arc;

    #[test]
    fn what_there_is_to_tell_a_person_goes_out_before_the_last_message() {
        let board = Arc::new(Board::new("here".to_owned(), true));
        let sink_layout = "synthetic:osts=1".to_owned();
        let setup = Setup {
            options: Options { sink_buffers_bytes: 8 << 20, sink_layout, ..Options::default() },
            streams: Arc::new(Streams::none()),
            board: Arc::clone(&board),
            clock: Clock::start(),
        };
        let end = SinkEnd::open(b"/".to_vec(), 1, setup).unwrap_or_else(|it| panic!("{}", it.text));
        board.notice("the last".to_owned());
        let mut said = Vec::new();
        let last = Message::Finished(Counters::default());
        say(&*end, &mut said, Some(last), Some(&board)).expect("there is room");
        let mut messages = MessageReader::new(said.as_slice());
        let mut next = || messages.next().unwrap_or_else(|it| panic!("{}", it.text));
        assert_eq!(next(), Some(Message::Notice("the last".to_owned())));
        assert!(matches!(next(), Some(Message::Finished(_))));
    }
}
