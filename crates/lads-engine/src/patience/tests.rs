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

/// Several threads notice the same absence.
#[test]
fn time_in_which_the_process_was_stopped_does_not_count() {
    let stop = StopFlag::new();
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let mut patience = Patience::new(&stop, Duration::from_secs(5));
    let began = Instant::now().checked_sub(Duration::from_secs(20)).unwrap();
    patience.started = began;
    assert_eq!(patience.wait_readable(&ours), Err(Cut::Late(Duration::from_secs(5))));
    for thread in 0..3 {
        patience.absences.on_waited(began + millis(100 * thread), millis(50));
    }
    assert!(patience.waited(began) < Duration::from_secs(1), "{:?}", patience.waited(began));
    assert!(patience.next_wait(began).is_ok());
    assert!(patience.part(Duration::from_secs(9)).limit() > Duration::from_secs(4));
    let later = began + Duration::from_secs(12);
    assert!(patience.waited(later) < Duration::from_secs(1), "only the absence after it");
    patience.absences.on_waited(Instant::now(), millis(50));
    assert_eq!(lock(&patience.absences.0).len(), 3, "a wait as long as it should be");
}
