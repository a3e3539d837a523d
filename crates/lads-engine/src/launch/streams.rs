//! The data streams of a transfer: one end connects them, the other accepts them, on a thread of
//! its own. Meanwhile the ends already talk: the source announces files, and the sink says what it
//! has of them, which saves two round trips.

use super::greeting::GREETING_DEADLINE;
use super::route::Route;
use crate::event::ExitCode;
use crate::fatal::Fatal;
use crate::job::Options;
use crate::patience::Patience;
use crate::stop::StopFlag;
use crate::thread::spawn;
use crate::transport::{Transport, tcp};
use lads_core::issue::Side;
use lads_core::protection::{Protection, Secret};
use lads_core::shares::stream_count;
use lads_core::tuning::Tuning;
use lads_core::units::StreamId;
use std::fs::File;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How long the port stays open for streams that may come or not. They come within a few round
/// trips, or within a second or three more if a packet is lost. With half, one that lost two
/// packets would be left out; with double, the port is open for longer if the other end wants
/// fewer.
const MORE_DEADLINE: Duration = Duration::from_secs(10);

/// The data streams of a job, of which none is open yet. Within one host, a connection is not lost
/// while both processes exist, even if one of them is stopped.
pub(super) fn data_streams(options: &Options, more_count: u16, is_local: bool) -> Arc<tcp::Tcp> {
    let silence = match is_local {
        true => Duration::MAX,
        false => Duration::from_secs(options.timeout_seconds.into()),
    };
    Arc::new(tcp::Tcp::opening(options.streams.into(), silence).and_more(more_count.into()))
}

/// How many more streams there should be, now that those that are needed are open: the other end
/// may be far away. Windows hold `window_bytes`.
fn count_of_more(streams: &tcp::Tcp, window_bytes: u64) -> usize {
    let needed_count = u16::try_from(streams.needed_count()).expect("streams have 16 bits");
    let Some(round_trip) = streams.round_trip() else { return 0 };
    let count = stream_count(&Tuning::DEFAULT, needed_count, round_trip, window_bytes);
    usize::from(count - needed_count)
}

/// Streams that are being opened. Meanwhile the ends already talk: the source announces files, and
/// the sink says what it has of them, which saves two round trips.
#[derive(Debug)]
pub(crate) struct Opening {
    result: Receiver<Result<(), Fatal>>,
    more: Receiver<StreamId>,
    /// Whether streams may follow that are not needed.
    pub(crate) may_have_more: bool,
}

/// Who is told of streams that were opened. If an end could not begin, or is over, nobody listens.
struct Opened {
    result: Sender<Result<(), Fatal>>,
    more: Sender<StreamId>,
}

impl Opened {
    /// All streams that are needed are open, or why one of them cannot be opened. Returns whether
    /// they are.
    fn say(&self, result: Result<(), Fatal>) -> bool {
        let is_open = result.is_ok();
        let _ = self.result.send(result);
        is_open
    }

    /// One more stream is open.
    fn say_more(&self, stream: StreamId) {
        let _ = self.more.send(stream);
    }
}

impl Opening {
    /// Opens streams on a thread of its own: those that are needed, then at most `more_count`.
    fn begin(more_count: usize, open: impl FnOnce(&Opened) + Send + 'static) -> Self {
        let ((result, its_result), (more, its_more)) = (channel(), channel());
        let failed = result.clone();
        if let Err(error) = spawn("lads-streams", move || open(&Opened { result, more })) {
            let _ = failed.send(Err(error.into()));
        }
        Self { result: its_result, more: its_more, may_have_more: more_count > 0 }
    }

    /// Waits until all streams that are needed are open, or why one of them cannot be opened.
    pub(crate) fn failure(&self) -> Option<Fatal> {
        self.result.recv().ok()?.err()
    }

    /// Waits until one more stream is open; `None` if there will be no other.
    pub(crate) fn next_more(&self) -> Option<StreamId> {
        self.more.recv().ok()
    }
}

/// What limits the bytes that a stream has in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    pub(super) own_side: Side,
    /// How many the other end's host lets it have.
    pub(super) far_bytes: u64,
}

impl Windows {
    /// How many bytes a stream can have in flight, now that some are open.
    fn bytes(self, streams: &tcp::Tcp) -> u64 {
        streams.window_bytes(self.own_side).map_or(self.far_bytes, |it| it.min(self.far_bytes))
    }
}

/// Opens a stream for each secret that is needed, then as many more as there should be.
pub(super) fn connecting(
    route: Route,
    addresses: Vec<SocketAddr>,
    secrets: Vec<Secret>,
    streams: Arc<tcp::Tcp>,
    windows: Windows,
    (stop, silence): (StopFlag, Duration),
) -> Opening {
    let more_count = secrets.len() - streams.needed_count();
    Opening::begin(more_count, move |opened| {
        let patience = Patience::new(&stop, GREETING_DEADLINE).with_silence(silence);
        let (needed, more) = secrets.split_at(streams.needed_count());
        if opened.say(route.connect_all(&addresses, needed, &patience, &streams)) {
            let count = count_of_more(&streams, windows.bytes(&streams));
            let more = &more[..count.min(more.len())];
            route.connect_more(&addresses, more, &patience, &streams, |id| opened.say_more(id));
        }
    })
}

/// Opens each stream when the other end, which is read from `input`, connects it. `contact_limit`:
/// see [`tcp::Listener::accept_all`].
pub(super) fn accepting(
    listener: tcp::Listener,
    (streams, protection): (Arc<tcp::Tcp>, Protection),
    contact_limit: Option<Duration>,
    input: &File,
    stop: StopFlag,
) -> Opening {
    let more_count = listener.secrets.len() - streams.needed_count();
    let control = input.try_clone().map_err(|error| {
        Fatal::new(ExitCode::Other, format!("cannot wait for data streams: {error}"))
    });
    Opening::begin(more_count, move |opened| {
        let control = match control {
            Ok(control) => control,
            Err(fatal) => {
                opened.say(Err(fatal));
                return;
            }
        };
        let tcp = &streams;
        let patience = Patience::new(&stop, GREETING_DEADLINE);
        match listener.accept_all((tcp, protection), contact_limit, &patience, &control) {
            Ok(door) => {
                opened.say(Ok(()));
                // The end that connects knows its windows, and may want fewer.
                let most = count_of_more(tcp, Tuning::DEFAULT.stream_window_bytes);
                let patience = patience.part(MORE_DEADLINE);
                door.accept_more(most, &patience, &control, |id| opened.say_more(id));
            }
            Err(fatal) => {
                opened.say(Err(fatal));
            }
        }
    })
}
