//! What is said of names that are to be removed: by a source that answers, and by a sink that asks.

use crate::case::Case;
use crate::entries::{content_of, file};
use crate::peer::{Heard, Opening, Peer, Told, wrong};
use crate::world::World;
use lads_core::limits::{QUESTION_NAMES_MAX, QUESTIONS_OPEN_MAX};
use lads_core::message::{Message, Presence, Question};
use std::fs;
use std::os::unix::fs::symlink;

const DELETE: &[&str] = &["--delete"];

pub(super) const CASES: &[Case] = &[
    // A source may have everything removed that the person asked to mirror, and nothing else.
    Case::source("everything_is_absent", |peer| {
        peer.note_lie();
        answering(peer, |question| vec![Presence::Absent; question.names.len()])
    })
    .options(DELETE)
    .setup(with_target)
    .exits(&[0, 6])
    .served_too(),
    Case::source("everything_is_a_directory", |peer| {
        peer.note_lie();
        answering(peer, |question| vec![Presence::Directory; question.names.len()])
    })
    .options(DELETE)
    .setup(with_target)
    .exits(&[0]),
    Case::source("answer_to_no_question", |peer| {
        peer.say(&Message::There { number: 1, answers: vec![Presence::Absent] })
    })
    .options(DELETE)
    .setup(with_target),
    Case::source("answer_although_nothing_is_to_be_removed", |peer| {
        peer.say(&Message::There { number: 1, answers: vec![Presence::Absent] })
    })
    .setup(with_target)
    .served_too(),
    Case::source("answer_for_more_names", |peer| {
        answering(peer, |question| vec![Presence::Absent; question.names.len() + 1])
    })
    .options(DELETE)
    .setup(with_target)
    .served_too(),
    Case::source("answer_for_no_names", |peer| answering(peer, |_| Vec::new()))
        .options(DELETE)
        .setup(with_target),
    Case::source("answer_given_twice", |peer| {
        peer.deliver(&file(1, "one", 300 << 10), 0)?;
        peer.speak(&Message::Finish { is_complete: true })?;
        let Question { number, names, .. } = question(peer)?;
        let answers = vec![Presence::Other; names.len()];
        peer.speak(&Message::There { number, answers: answers.clone() })?;
        peer.say(&Message::There { number, answers })
    })
    .options(DELETE)
    .setup(with_target)
    // The sink may have come to its end by then.
    .exits(&[0, 5]),
    Case::sink("question_although_nothing_is_to_be_removed", |peer| {
        peer.sink_until_finish()?;
        ask(peer, b"", &[b"one"])
    })
    .served_too(),
    Case::sink("question_before_everything_has_ended", |peer| ask(peer, b"", &[b"one"]))
        .options(DELETE)
        .served_too(),
    Case::sink("question_of_a_name_that_leads_up", |peer| {
        peer.sink_until_finish()?;
        ask(peer, b"", &[b"one", b".."])
    })
    .options(DELETE)
    .served_too(),
    Case::sink("question_of_a_path_for_a_name", |peer| {
        peer.sink_until_finish()?;
        ask(peer, b"", &[b"../canary/secret"])
    })
    .options(DELETE)
    .served_too(),
    Case::sink("question_about_a_directory_above", |peer| {
        peer.sink_until_finish()?;
        ask(peer, b"../canary", &[b"secret"])
    })
    .options(DELETE)
    .served_too(),
    Case::sink("question_about_an_absolute_directory", |peer| {
        peer.sink_until_finish()?;
        ask(peer, b"/etc", &[b"passwd"])
    })
    .options(DELETE)
    .served_too(),
    Case::sink("question_about_where_a_link_leads", |peer| {
        peer.sink_until_finish()?;
        expect_unknown(peer, b"link", b"secret")
    })
    .at(Opening::Ready)
    .options(DELETE)
    .setup(|world| symlink(world.canary(), world.source().join("link")).unwrap())
    .exits(&[8]),
    Case::sink("question_about_a_directory_that_is_not_there", |peer| {
        peer.sink_until_finish()?;
        expect_unknown(peer, b"never/announced", b"name")
    })
    .options(DELETE)
    .exits(&[8]),
    Case::sink("question_of_too_many_names", |peer| {
        peer.sink_until_finish()?;
        ask(peer, b"", &[b"name".as_slice(); QUESTION_NAMES_MAX + 1])
    })
    .options(DELETE)
    .served_too(),
    Case::sink("question_of_no_names", |peer| {
        peer.sink_until_finish()?;
        ask(peer, b"", &[])
    })
    .options(DELETE),
    // More than it may ask without an answer, many times: the source ends it, or keeps up.
    Case::sink("questions_by_the_million", |peer| {
        peer.sink_until_finish()?;
        let names = [b"name".as_slice(); QUESTION_NAMES_MAX];
        (0..20 * QUESTIONS_OPEN_MAX).try_for_each(|_| ask(peer, b"", &names))
    })
    .options(DELETE)
    .exits(&[5])
    .flood(),
    Case::sink("removed_before_everything_has_ended", |peer| peer.say(&Message::Removed(1)))
        .options(DELETE),
    Case::sink("removed_fewer_than_before", |peer| {
        peer.sink_until_finish()?;
        peer.speak(&Message::Removed(5))?;
        peer.say(&Message::Removed(4))
    })
    .options(DELETE),
    Case::sink("removed_more_than_there_can_be", |peer| {
        peer.sink_until_finish()?;
        peer.say(&Message::Removed(u64::MAX))
    })
    .options(DELETE),
];

/// Something at the target, and a link out of it.
fn with_target(world: &World) {
    let inner = world.target().join("inner");
    fs::create_dir(&inner).unwrap();
    for directory in [world.target(), inner] {
        fs::write(directory.join("there"), content_of(b"there", 10)).unwrap();
        symlink(world.canary(), directory.join("out")).unwrap();
    }
}

/// A source that moves a file and then answers every question so.
fn answering(peer: &mut Peer, answer: impl Fn(&Question) -> Vec<Presence>) -> Told {
    peer.deliver(&file(1, "one", 300 << 10), 0)?;
    peer.speak(&Message::Finish { is_complete: true })?;
    loop {
        let heard = peer.expect(|heard| match heard {
            Heard::Said(Message::AreThere(question)) => Some(Some(question.clone())),
            Heard::Said(Message::Finished(_)) => Some(None),
            _ => None,
        })?;
        let Some(question) = heard else { return peer.end_as_source() };
        let number = question.number;
        peer.say(&Message::There { number, answers: answer(&question) })?;
    }
}

fn question(peer: &mut Peer) -> Told<Question> {
    peer.expect(|heard| match heard {
        Heard::Said(Message::AreThere(question)) => Some(question.clone()),
        _ => None,
    })
}

/// Asks about something that is none of the sink's business.
fn expect_unknown(peer: &mut Peer, directory: &[u8], name: &[u8]) -> Told {
    ask(peer, directory, &[name])?;
    let answers = peer.expect(|heard| match heard {
        Heard::Said(Message::There { answers, .. }) => Some(answers.clone()),
        _ => None,
    })?;
    match answers.as_slice() {
        [Presence::Unknown] => peer.end_as_sink(),
        told => wrong(format!("it told of {directory:?}: {told:?}")),
    }
}

fn ask(peer: &mut Peer, directory: &[u8], names: &[&[u8]]) -> Told {
    let names = names.iter().map(|name| name.to_vec()).collect();
    let question = Question { number: 1, directory: directory.to_vec(), names };
    peer.say(&Message::AreThere(question))
}
