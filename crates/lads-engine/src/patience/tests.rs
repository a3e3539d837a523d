use super::*;
use lads_tried::Stopwatch;
use std::os::unix::net::UnixStream;

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[test]
fn one_deadline_holds_for_all_bytes_together() {
    let stop = StopFlag::new();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let (over, is_over) = mpsc::channel::<()>();
    let dripping = std::thread::spawn(move || {
        // For 10 s at most, should nobody put an end to it.
        for _ in 0..1000 {
            if is_over.recv_timeout(millis(10)) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let _ = theirs.write_all(&[0]);
        }
    });
    let patience = Patience::new(&stop, millis(300)).with_silence(millis(200));
    let started = Stopwatch::start();
    let error = Patient { pipe: ours, patience: &patience }.read_exact(&mut [0; 1 << 20]);
    drop(over);
    dripping.join().unwrap();
    assert_eq!(Cut::of(&error.unwrap_err()), Some(Cut::Late(millis(300))));
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[test]
fn who_says_nothing_is_silent() {
    let stop = StopFlag::new();
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let patience = Patience::new(&stop, Duration::from_secs(60)).with_silence(millis(20));
    let error = Patient { pipe: ours, patience: &patience }.read(&mut [0]).unwrap_err();
    assert_eq!(Cut::of(&error), Some(Cut::Silent(millis(20))));
}

#[test]
fn who_does_not_read_holds_up_no_writer() {
    let stop = StopFlag::new();
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let patience = Patience::new(&stop, Duration::from_secs(60)).with_silence(millis(20));
    let error = Patient { pipe: ours, patience: &patience }.write_all(&[0; 1 << 20]).unwrap_err();
    assert_eq!(Cut::of(&error), Some(Cut::Silent(millis(20))));
}

#[test]
fn whoever_wants_to_stop_is_heard_in_every_wait() {
    let stop = StopFlag::new();
    stop.set("enough");
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let patience = Patience::new(&stop, Duration::from_secs(60));
    assert_eq!(patience.wait_readable(&ours), Err(Cut::Stopped));
    assert_eq!(patience.pause(Duration::from_secs(60)), Err(Cut::Stopped));
    let (never, waits) = mpsc::channel::<()>();
    let result = patience.result_of("test-waits", move || waits.recv());
    assert_eq!(result, Err(Cut::Stopped));
    drop(never);
}

#[test]
fn a_part_is_no_longer_than_what_is_left() {
    let stop = StopFlag::new();
    let patience = Patience::new(&stop, millis(50));
    assert!(patience.part(Duration::from_secs(60)).limit() <= millis(50));
    assert_eq!(patience.part(millis(10)).limit(), millis(10));
}
