//! A peer that says too little, too much or something else: the command ends, and says why.

use crate::proxy::free_port;
use crate::world::{
    LADS, RUN_HERE, Rng, Running, Stopwatch, World, for_seeds, lads, run, send_signal, start,
    there, wait_for, wait_until_gone, write_script,
};
use lads_core::message::{
    DataPort, Hello, LENGTH_BYTES, MAGIC, Message, SchemaDigest, VERSION, VERSION_MIN, decode,
    encode,
};
use lads_core::protection::{Protection, Secret};
use lads_core::schema::DIGEST;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The time after which an end gives up if it receives data but not the whole greeting. `SLACK` is
/// what a loaded machine may need in addition.
const GREETING: Duration = Duration::from_secs(30);
const SLACK: Duration = Duration::from_secs(12);

/// A program in place of LADS; it sends fixed messages and reads only what its script reads.
struct Liar<'w> {
    world: &'w World,
    shell: String,
}

impl<'w> Liar<'w> {
    /// Sends `said`, then runs the script.
    fn new(world: &'w World, said: &[Message], script: &str) -> Self {
        let file = world.write("said", &bytes_of(said));
        let shell = world.fake_shell(&format!("cat '{}'; {script}", file.display()));
        Self { world, shell }
    }

    /// Returns a push to it.
    fn push(&self, options: &[&str]) -> Command {
        let mut command = lads(&["-e", &self.shell, "--remote-lads", LADS]);
        command.args(options).arg(self.world.source_contents());
        command.arg("there.invalid:/nowhere");
        command
    }
}

fn bytes_of(messages: &[Message]) -> Vec<u8> {
    let mut bytes = Vec::new();
    messages.iter().for_each(|message| encode(message, &mut bytes));
    bytes
}

fn hello() -> Message {
    Message::Hello(Hello {
        magic: MAGIC,
        version_min: VERSION_MIN,
        version: VERSION,
        features: 0,
        software: "liar".to_owned(),
        host: "liar".to_owned(),
        schema: SchemaDigest(Some(DIGEST)),
    })
}

fn listen(address: &str, port: u16, token_count: usize) -> Message {
    let (address, secrets) = (address.to_owned(), vec![Secret([7; 32]); token_count]);
    let port = DataPort { address, port, secrets, window_bytes: 0 };
    Message::Listen { port, protection: Protection::Aes128Gcm }
}

/// Opens a port that accepts every connection and every token.
fn gullible_port() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let door = listener.try_clone().unwrap();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for mut stream in door.incoming().map_while(Result::ok) {
            let _ = stream.read_exact(&mut [0; 58]).and_then(|()| stream.write_all(&[1]));
            kept.push(stream);
        }
    });
    (listener, port)
}

fn one_file() -> World {
    let world = World::new();
    world.write("src/a", b"a");
    world
}

/// Starts `lads serve`, with its input connected to the test.
fn serve() -> Child {
    let mut command = Command::new(LADS);
    command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Returns the words with which an ordinary push starts the other end.
fn words_of_a_push(world: &World, options: &[&str]) -> Vec<String> {
    let file = world.path("words");
    let written = world.path("written");
    let (to, done) = (written.display(), file.display());
    let script =
        format!("shift; printf '%s\\n' \"$@\" > '{to}'; mv '{to}' '{done}'; exec sleep 300");
    let running = start(through(world, &world.fake_shell(&script), options));
    let words = wait_for("the other end to be started", || fs::read_to_string(&file).ok());
    drop(running);
    words.lines().map(str::to_owned).collect()
}

/// Reads a message from an end.
fn next_message(from: &mut impl std::io::Read) -> Message {
    let mut length = [0; LENGTH_BYTES];
    from.read_exact(&mut length).unwrap();
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    from.read_exact(&mut bytes).unwrap();
    decode(&bytes).unwrap()
}

/// ssh lets nothing into standard input before the command has begun, which is a round trip later.
#[test]
fn the_other_end_listens_before_anything_was_said_to_it() {
    let words = words_of_a_push(&one_file(), &[]);
    let [program, serve, job] = &words[..] else { panic!("{words:?}") };
    assert_eq!([program, serve], [LADS, "serve"]);
    let start = |job: &str| {
        let mut command = Command::new(LADS);
        command.args(["serve", job]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::null()).spawn().unwrap()
    };
    let mut child = start(job);
    let mut said = child.stdout.take().unwrap();
    assert!(matches!(next_message(&mut said), Message::Hello(_)));
    let Message::Listen { port, .. } = next_message(&mut said) else { panic!("{words:?}") };
    assert!(port.port > 0 && !port.secrets.is_empty());
    // Another job, as from whoever could write to its input, and not start it.
    let other = bytes_of(&[hello(), Message::Job(vec![1, 2, 3])]);
    child.stdin.take().unwrap().write_all(&other).unwrap();
    let Message::Fatal { text, .. } = next_message(&mut said) else { panic!("{words:?}") };
    assert!(text.contains("two different jobs"), "{text}");
    child.wait().unwrap();

    // What another build says ahead is not understood, so it says nothing but who it is.
    let mut child = start(&job.replacen(|_: char| true, "x", 1));
    let mut said = child.stdout.take().unwrap();
    assert!(matches!(next_message(&mut said), Message::Hello(_)));
    child.stdin.take().unwrap().write_all(&bytes_of(&[hello()])).unwrap();
    let Message::Fatal { text, .. } = next_message(&mut said) else { panic!("{words:?}") };
    assert!(text.contains("sent no job"), "{text}");
    child.wait().unwrap();
}

/// The other end connects only after it receives an address, with a secret for each stream.
#[test]
fn the_other_end_receives_the_address_to_connect_to() {
    let connect = ["--connect", "sink", "--streams", "4"];
    let words = words_of_a_push(&one_file(), &connect);
    let job = DIGEST.len() * 2;
    let bytes: Vec<u8> = words[2].as_bytes()[job..]
        .chunks(2)
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect();
    let port = |address: &str, count| DataPort {
        address: address.to_owned(),
        port: 1,
        secrets: vec![Secret([7; 32]); count],
        window_bytes: 0,
    };
    let connects = |address, count| Message::Connect(port(address, count));
    // Besides, up to 28 more streams to a host far away; `--streams` excludes them.
    for (said, expected) in [
        (connects("127.0.0.1", 3), "opens 3 data streams instead of 4"),
        (connects("127.0.0.1", 256), "opens 256 data streams instead of 4"),
        (connects("", 4), "does not tell from which address it was called"),
        (Message::Heartbeat, "did not say where data connections go"),
    ] {
        let mut command = Command::new(LADS);
        command.args(["serve", &words[2]]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::null()).env_remove("SSH_CONNECTION");
        let mut child = command.spawn().unwrap();
        let messages = bytes_of(&[hello(), Message::Job(bytes.clone()), said]);
        child.stdin.take().unwrap().write_all(&messages).unwrap();
        let mut said = child.stdout.take().unwrap();
        assert!(matches!(next_message(&mut said), Message::Hello(_)));
        let Message::Listen { port, protection } = next_message(&mut said) else {
            panic!("it listens")
        };
        assert_eq!((port, protection.level().name()), (DataPort::default(), "encrypted"));
        let Message::Fatal { text, .. } = next_message(&mut said) else { panic!("{expected}") };
        assert!(text.contains(expected), "{text}");
        child.wait().unwrap();
    }
}

/// Secrets of an end that should connect are for nothing.
#[test]
fn the_other_end_does_not_listen_if_it_connects() {
    let world = one_file();
    let liar = Liar::new(&world, &[hello(), listen("", 1, 4)], "exec cat > /dev/null");
    let push = liar.push(&["--streams", "4", "--connect", "sink", "--no-tunnel"]);
    run(push).expect(5).says(&["opens 4 data streams instead of 0"]).within(SLACK);
}

/// A command that was set for the key of a person gets no words of theirs.
#[test]
fn an_other_end_that_gets_no_words_hears_all_on_its_input() {
    let world = one_file();
    let shell = world.fake_shell(&format!("exec '{LADS}' serve"));
    let mut command = Command::new(LADS);
    command.args(["cp", "-e", &shell]).arg(world.source_contents());
    run({
        command.arg(format!("there.invalid:{}", world.target().display()));
        command.args(["--data-address", "127.0.0.1"]);
        command
    })
    .expect(0);
    assert_eq!(fs::read(world.path("dst/a")).unwrap(), b"a");
}

#[test]
fn a_peer_that_never_says_a_word_is_given_up() {
    let world = one_file();
    let shell = world.fake_shell("exec sleep 300");
    let mut command = there(&shell);
    command.args(["--connect-timeout", "1"]).arg(world.source_contents()).arg("there:/nowhere");
    let running = start(command);
    let silent = running.other_end();
    running
        .end()
        .expect(5)
        .says(&["within 1 s, neither from LADS", "--connect-timeout"])
        .within(SLACK);
    wait_until_gone(silent);
}

/// Returns an ordinary `lads cp` to a host that is reached by a command that says nothing.
fn to_a_mute(world: &World, options: &[&str]) -> Command {
    through(world, &world.fake_shell("exec sleep 300"), options)
}

fn through(world: &World, shell: &str, options: &[&str]) -> Command {
    let mut command = Command::new(LADS);
    command.args(["cp", "-e", shell, "--remote-lads", LADS]).args(options);
    command.arg(world.source_contents()).arg("there:/nowhere");
    command
}

/// A regression test: the wait was 300 s, without a sign of life, whatever `--timeout` said.
#[test]
fn a_command_that_is_not_ssh_is_given_up_after_the_timeout_which_is_told() {
    let world = one_file();
    let ended = run(to_a_mute(&world, &["--timeout", "5"])).expect(5).within(SLACK);
    let told: Vec<&str> = ended.stderr.lines().collect();
    let [waited, gave_up] = told[..] else { panic!("{told:?}") };
    assert!(waited.starts_with("lads: waited 3 s (at most 5 s) for LADS on there "), "{waited}");
    assert!(waited.contains("shell-"), "through what is told: {waited}");
    let words = ["no reply from there within 5 s (--timeout)", "--connect-timeout SECONDS"];
    assert!(words.iter().all(|words| gave_up.contains(words)), "{gave_up}");
    assert!(ended.elapsed >= Duration::from_secs(5), "{:?}", ended.elapsed);
}

#[test]
fn a_wait_is_not_told_if_only_what_went_wrong_is_wanted() {
    let world = one_file();
    let ended = run(to_a_mute(&world, &["-q", "--connect-timeout", "4"])).expect(5).within(SLACK);
    assert!(!ended.stderr.contains("waited"), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
}

#[test]
fn a_program_is_told_once_of_a_wait() {
    let world = one_file();
    let command = to_a_mute(&world, &["--json", "--timeout", "1", "--connect-timeout", "5"]);
    let ended = run(command).expect(5).within(SLACK);
    let notices = ended.events_of("notice");
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0]["text"].as_str().unwrap().starts_with("waited 3 s (at most 5 s)"));
}

/// The user may type a password meanwhile, or have to fetch a telephone.
#[test]
fn ssh_has_more_time_than_the_timeout() {
    let world = one_file();
    let file = world.path("ssh");
    write_script(&file, "[ \"$1\" = -G ] || exec sleep 300").unwrap();
    for words in [file.display().to_string(), format!("env X=1 {}", file.display())] {
        let running = start(through(&world, &words, &["--timeout", "1"]));
        let told = "(at most 5 min 00 s)";
        wait_for("the wait to be told", || running.has_said(told).then_some(()));
        heeds(running);
    }
}

#[test]
fn a_greeting_has_one_deadline_however_it_is_cut() {
    let world = one_file();
    // Send a HELLO that never ends, one byte at a time.
    let mut begun = bytes_of(&[hello()]);
    begun[..4].copy_from_slice(&4000u32.to_le_bytes());
    let file = world.write("begun", &begun);
    let drip = "while printf x; do sleep 0.3; done";
    let shell = world.fake_shell(&format!("cat '{}'; {drip}", file.display()));
    let mut command = there(&shell);
    command.args(["--timeout", "20"]).arg(world.source_contents()).arg("there:/nowhere");
    let client = start(command);
    // Do the same to the serving end; another serving end gets nothing.
    let (mut dripped, mut alone) = (serve(), serve());
    let started = Stopwatch::start();
    let mut input = dripped.stdin.take().unwrap();
    input.write_all(&begun).unwrap();
    let dripping = std::thread::spawn(move || {
        while input.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(300));
        }
    });
    for serving in [&mut dripped, &mut alone] {
        let code = wait_for("an end that nobody greets to end", || {
            serving.try_wait().unwrap().map(|status| status.code())
        });
        assert_eq!(code, Some(5));
        let elapsed = started.elapsed();
        assert!(elapsed < GREETING + SLACK, "{elapsed:?}");
    }
    dripping.join().unwrap();
    client
        .end()
        .expect(5)
        .says(&["did not finish the greeting within 30 s"])
        .within(GREETING + SLACK);
}

#[test]
fn a_greeting_that_is_too_long_is_refused() {
    let world = one_file();
    let long = Message::Hello(Hello {
        magic: MAGIC,
        version_min: VERSION_MIN,
        version: VERSION,
        features: 0,
        software: "x".repeat(1 << 20),
        host: String::new(),
        schema: SchemaDigest(Some(DIGEST)),
    });
    let liar = Liar::new(&world, &[long], "exec cat > /dev/null");
    run(liar.push(&[])).expect(5).says(&["a message of 1048"]).within(SLACK);
    let long = listen(&"x".repeat(1 << 20), 1, 1);
    let liar = Liar::new(&world, &[hello(), long], "exec cat > /dev/null");
    run(liar.push(&[])).expect(5).says(&["a message of 1048"]).within(SLACK);
}

#[test]
fn there_are_as_many_tokens_as_streams() {
    let world = one_file();
    for count in [0, 3, 5, 256] {
        let said = [hello(), listen("", 1, count)];
        let liar = Liar::new(&world, &said, "exec cat > /dev/null");
        let expected = format!("opens {count} data streams instead of 4");
        run(liar.push(&["--streams", "4"])).expect(5).says(&[&expected]).within(SLACK);
    }
}

#[test]
fn a_host_that_protects_data_less_or_otherwise_than_it_was_asked_to_gets_none() {
    let world = one_file();
    for said in [Protection::Plain, Protection::Authenticated, Protection::Aes128Gcm] {
        for asked in ["encrypted", "authenticated", "plain"] {
            let Message::Listen { port, .. } = listen("", 1, 4) else { panic!("it is LISTEN") };
            let listen = Message::Listen { port, protection: said };
            let liar = Liar::new(&world, &[hello(), listen], "exec cat > /dev/null");
            let ended = run(liar.push(&["--streams", "4", "--data", asked, "--no-tunnel"]));
            if said.level().name() == asked {
                ended.expect(5);
            } else {
                let expected = format!("data would be {} instead of {asked}", said.level());
                ended.expect(4).says(&[&expected]);
            }
        }
    }
}

#[test]
fn data_goes_to_no_host_that_only_the_other_end_names() {
    let world = one_file();
    let trap = TcpListener::bind("127.0.0.1:0").unwrap();
    trap.set_nonblocking(true).unwrap();
    let port = trap.local_addr().unwrap().port();
    let said = [hello(), listen("127.0.0.1", port, 1)];
    let liar = Liar::new(&world, &said, "exec cat > /dev/null");
    let ended = run(liar.push(&["--streams", "1", "--no-tunnel"])).expect(5);
    ended.says(&["data would go to 127.0.0.1", "--data-address 127.0.0.1", "--tunnel"]);
    assert_eq!(trap.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn data_goes_to_the_host_that_was_named() {
    let world = one_file();
    let shell = world.fake_shell(&format!("export SSH_CONNECTION='h 1 192.0.2.1 2'; {RUN_HERE}"));
    let mut command = lads(&["-e", &shell, "--remote-lads", LADS]);
    command.arg(world.source_contents());
    command.arg(format!("somebody@127.0.0.1:{}", world.target().display()));
    // No host has the address 192.0.2.1: trying it would take 10 s.
    run(command).expect(0).within(Duration::from_secs(9));
    assert_eq!(fs::read(world.target().join("a")).unwrap(), b"a");
}

/// Asks a waiting command to stop, and checks that it does so in time.
fn heeds(running: Running) {
    running.signal("TERM");
    let since = Stopwatch::start();
    running.end().expect(9);
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
}

#[test]
fn a_signal_is_heeded_wherever_the_greeting_waits() {
    let world = one_file();
    let patient = ["--timeout", "100"];
    let said_hello = |after: &str| {
        let said = format!("{after}echo heard >&2; exec sleep 50");
        let liar = Liar::new(&world, &[hello()], &said);
        let running = start(liar.push(&patient));
        wait_for("the greeting", || running.has_said("heard").then_some(()));
        heeds(running);
    };
    // The peer has sent HELLO and does not answer JOB, whether it has read JOB or not.
    said_hello("");
    said_hello("head -c 60 > /dev/null; ");
    // The peer names a port where nobody answers.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = mute.local_addr().unwrap().port();
    let said = [hello(), listen("", port, 1)];
    let liar = Liar::new(&world, &said, "exec sleep 50");
    let options = [&patient[..], &["--streams", "1", "--data-address", "127.0.0.1"]].concat();
    let running = start(liar.push(&options));
    let _connected = mute.accept().unwrap();
    heeds(running);
}

#[test]
fn a_peer_that_only_gives_signs_of_life_ends_the_transfer() {
    let world = one_file();
    let (_door, port) = gullible_port();
    let beat = world.write("beat", &bytes_of(&[Message::Heartbeat]));
    let said = [hello(), listen("", port, 1)];
    let script =
        format!("cat > /dev/null & while cat '{}'; do sleep 0.1; done; wait", beat.display());
    let liar = Liar::new(&world, &said, &script);
    let options = ["--streams", "1", "--data-address", "127.0.0.1", "--stall-timeout", "2", "-q"];
    let ended = run(liar.push(&options)).expect(5);
    ended.says(&["no progress for 2 s", "there.invalid", "the same command resumes"]).within(SLACK);
}

#[test]
fn a_flood_of_words_takes_little_memory_and_is_no_progress() {
    let world = one_file();
    let (_door, port) = gullible_port();
    let notice = Message::Notice("so much to say".repeat(1000));
    let flood = world.write("flood", &bytes_of(&vec![notice; 100]));
    let said = [hello(), listen("", port, 1)];
    let script = format!("cat > /dev/null & while cat '{}'; do :; done", flood.display());
    let liar = Liar::new(&world, &said, &script);
    let options = ["--streams", "1", "--data-address", "127.0.0.1", "--stall-timeout", "3"];
    let mut command = liar.push(&options);
    // The buffers, which it always holds, are small.
    command.args(["--buffers", "8M"]);
    let running = start(command);
    let mut peak_kib = 0;
    let pid = running.pid();
    wait_for("the end", || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse().ok());
        peak_kib = peak_kib.max(peak.unwrap_or(0u64));
        // A process that has ended still has a name, but no memory.
        peak.is_none().then_some(())
    });
    let ended = running.end();
    assert_eq!(ended.code, Some(5), "exit {:?}: {}", ended.code, ended.stderr);
    assert!(peak_kib < 200 << 10, "{peak_kib} KiB");
}

#[test]
fn a_peer_that_does_not_read_is_dead() {
    let world = World::new();
    for number in 0..2000 {
        world.write(format!("src/{}{number}", "x".repeat(200)), b"a");
    }
    let (_door, port) = gullible_port();
    let beat = world.write("beat", &bytes_of(&[Message::Heartbeat]));
    let ready =
        Message::Ready { ost_count: 1, open_files_max: 100, is_renamed: false, time_unit_nanos: 1 };
    let said = [hello(), listen("", port, 1), ready];
    // The script reads JOB, so that it can answer it, and nothing else.
    let liar =
        Liar::new(&world, &said, &format!("while cat '{}'; do sleep 0.1; done", beat.display()));
    let options = ["--streams", "1", "--data-address", "127.0.0.1", "--timeout", "2"];
    let running = start(liar.push(&options));
    let peer = running.other_end();
    let ended = running.end().expect(5).within(SLACK);
    ended.says(&["has not read messages for 2 s"]);
    wait_until_gone(peer);
}

#[test]
fn a_list_of_files_may_be_long_and_is_refused_if_it_is_too_long() {
    let world = World::new();
    let directories = vec!["d".repeat(250); 14].join("/");
    world.write(format!("src/{directories}/a"), b"a");
    let line = format!("{directories}/a\n");
    let list = |bytes: usize| {
        world.write("list", line.repeat(bytes / line.len()).as_bytes()).display().to_string()
    };
    run(world.cp(&["--files-from", &list(20 << 20)])).expect(0);
    assert_eq!(fs::read(world.target().join(directories.clone() + "/a")).unwrap(), b"a");
    let ended = run(world.cp(&["--files-from", &list(66 << 20)])).expect(2);
    ended.says(&["patterns have", "64 MiB", "split the list"]);
}

#[test]
fn a_killed_client_leaves_its_port_to_the_next() {
    let world = one_file();
    let shell = world.fake_shell(RUN_HERE);
    let port = free_port();
    let ports = format!("{port}-{port}");
    let command = |address: &str| {
        let mut command = there(&shell);
        // The last of two addresses counts.
        command.args(["--ports", &ports, "--data-address", address, "--timeout", "100"]);
        command.arg(world.source_contents()).arg(format!("there:{}", world.target().display()));
        command
    };
    // The client has received LISTEN, and connects to another port, where nobody answers.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let elsewhere = format!("127.0.0.1:{}", mute.local_addr().unwrap().port());
    let running = start(command(&elsewhere));
    let _connected = mute.accept().unwrap();
    let serving = running.other_end();
    send_signal(running.pid(), "KILL");
    run(command("127.0.0.1")).expect(0).within(SLACK);
    wait_until_gone(serving);
    assert_eq!(fs::read(world.target().join("a")).unwrap(), b"a");
}

#[test]
fn streams_that_cannot_be_opened_hide_no_other_error_and_are_missed_only_by_data() {
    let world = one_file();
    let shell = world.fake_shell(RUN_HERE);
    let nobody = format!("127.0.0.1:{}", free_port());
    let cp = |target: &std::path::Path| {
        let mut command = there(&shell);
        command.args(["--no-tunnel", "--data-address", &nobody]).arg(world.source_contents());
        command.arg(format!("there:{}", target.display()));
        run(command)
    };
    cp(&world.target()).expect(5).says(&[
        "cannot connect a data stream",
        &nobody,
        "open that port",
    ]);
    // The other end says why it cannot begin, after the connection was refused here.
    cp(&world.source().join("a/below")).expect(6).says(&["cannot examine the target"]);
    // Nothing is left to send.
    run(world.cp(&[])).expect(0);
    cp(&world.target()).expect(0).within(SLACK);
}

/// The number of connections held open in silence, and also the number of those that send garbage,
/// before the first honest one comes. More follow until the port is closed.
const STRANGERS: usize = 2000;

/// A proxy to a port. When the first client connects to the proxy, it crowds the port with other
/// connections.
struct CrowdedWay {
    port: u16,
    stranger_count: Arc<AtomicUsize>,
}

impl CrowdedWay {
    fn to(to_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let stranger_count = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&stranger_count);
        std::thread::spawn(move || {
            let mut is_first = true;
            for near in listener.incoming().map_while(Result::ok) {
                if std::mem::take(&mut is_first) {
                    crowd(to_port, b"", &count);
                    crowd(to_port, b"GET / HTTP/1.1\r\n\r\n", &count);
                    let is_crowded = || count.load(Ordering::Relaxed) >= 2 * STRANGERS;
                    wait_for("a crowd", || is_crowded().then_some(()));
                }
                let Ok(far) = TcpStream::connect(("127.0.0.1", to_port)) else { continue };
                join(near.try_clone().unwrap(), far.try_clone().unwrap());
                join(far, near);
            }
        });
        Self { port, stranger_count }
    }
}

/// Copies data from one connection to the other, and then ends the other's stream.
fn join(mut from: TcpStream, mut to: TcpStream) {
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
}

/// Connects to a port again and again until it is closed, and sends this each time.
fn crowd(port: u16, said: &'static [u8], count: &Arc<AtomicUsize>) {
    let count = Arc::clone(count);
    std::thread::spawn(move || {
        let mut held = VecDeque::new();
        while let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
            let _ = stream.write_all(said);
            held.push_back(stream);
            if held.len() > STRANGERS {
                held.pop_front();
            }
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
}

/// A crowd needs many file descriptors.
fn raise_handle_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}

#[test]
fn a_crowd_at_the_port_keeps_nobody_out() {
    raise_handle_limit();
    for_seeds(3, 14, |seed| {
        let world = World::new();
        world.write("src/a", &Rng::new(seed).bytes(100_000));
        let shell = world.fake_shell(RUN_HERE);
        let port = free_port();
        let way = CrowdedWay::to(port);
        let mut command = there(&shell);
        command.args(["--ports", &port.to_string()]);
        command.args(["--data-address", &format!("127.0.0.1:{}", way.port)]);
        command.arg(world.source_contents());
        command.arg(format!("there:{}", world.target().display()));
        let ended = run(command);
        let count = way.stranger_count.load(Ordering::Relaxed);
        assert_eq!(ended.code, Some(0), "{count} strangers: {ended:?}");
        assert!(count >= 2 * STRANGERS, "{count} strangers: {ended:?}");
    });
}

#[test]
fn a_panic_in_any_thread_ends_the_command_and_the_same_command_goes_on() {
    for (end, code) in [("cp", 9), ("serve", 5)] {
        let world = World::new();
        world.write("src/a", &Rng::new(1).bytes(8 << 20));
        let fifo = world.path("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let mut command = world.cp(&["--bwlimit", "2M", "--lab", "block-size=64K"]);
        command.env("LADS_FAULT_PANIC", format!("{end}:{}", fifo.display()));
        let mut running = start(command);
        let sink = running.other_end();
        assert!(running.runs_until_written(sink, 1 << 20));
        drop(File::options().write(true).open(&fifo).unwrap());
        let ended = running.end();
        assert_eq!(ended.code, Some(code), "{end}: {ended:?}");
        let said = ["asked for in", "this is a bug in LADS", "The same command resumes"];
        assert!(said.iter().all(|words| ended.stderr.contains(words)), "{ended:?}");
        wait_until_gone(sink);
        run(world.cp(&[])).expect(0);
    }
}

#[test]
fn a_panic_ends_the_command_though_standard_error_is_closed() {
    let world = World::new();
    world.write("src/a", &Rng::new(1).bytes(8 << 20));
    let fifo = world.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let cp = world.cp(&["--bwlimit", "2M", "--lab", "block-size=64K"]);
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" 2>&-", "sh"]).arg(cp.get_program()).args(cp.get_args());
    command.env("LADS_FAULT_PANIC", format!("cp:{}", fifo.display()));
    let mut running = start(command);
    let sink = running.other_end();
    assert!(running.runs_until_written(sink, 1 << 20));
    drop(File::options().write(true).open(&fifo).unwrap());
    running.end().expect(9);
}
