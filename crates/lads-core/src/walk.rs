//! In which order the walk tells what it meets, whoever is quicker.
//!
//! A plan is a line of jobs. Threads take jobs near its front and do them at the same time; each
//! leaves a report in the place of the job, and behind it what follows from it. Reports leave the
//! line at its front alone. So a tree is told in one order, as if one thread had walked it: a dry
//! run says what will be done, and of a file with several names the same one is met first when
//! another attempt goes on.

use std::collections::VecDeque;

/// Places from the front in which jobs are taken, as many as there may be reports in memory that
/// wait for their turn. The walk's reports have at most 32 entries of some 300 bytes: 0.6 MiB in
/// all. Half would be that much less, and four jobs for each of its threads; double twice as much.
const LOOK_AHEAD: usize = 64;

/// A line of jobs and of reports on them.
#[derive(Debug)]
pub struct Plan<J, R> {
    line: VecDeque<(Number, Step<J, R>)>,
    last: Number,
    is_telling: bool,
}

/// A place in the line, wherever that is by now.
pub type Number = u64;

/// What stands at a place of the line.
#[derive(Debug)]
pub enum Step<J, R> {
    /// To be done.
    Job(J),
    /// Somebody does it.
    UnderWay,
    /// To be told.
    Report(R),
}

impl<J, R> Plan<J, R> {
    /// With one job.
    #[must_use]
    pub fn new(first: J) -> Self {
        let line = VecDeque::from([(0, Step::Job(first))]);
        Self { line, last: 0, is_telling: false }
    }

    /// The next job, if there is one near the front.
    pub fn take(&mut self) -> Option<(Number, J)> {
        let mut near = self.line.iter_mut().take(LOOK_AHEAD);
        let (number, step) = near.find(|(_, step)| matches!(step, Step::Job(_)))?;
        match std::mem::replace(step, Step::UnderWay) {
            Step::Job(job) => Some((*number, job)),
            Step::UnderWay | Step::Report(_) => unreachable!("it was found to be a job"),
        }
    }

    /// Returns how many jobs could be taken.
    #[must_use]
    pub fn job_count(&self) -> usize {
        let near = self.line.iter().take(LOOK_AHEAD);
        near.filter(|(_, step)| matches!(step, Step::Job(_))).count()
    }

    /// A job is done; what follows from it comes behind its report.
    ///
    /// # Panics
    /// If the job was not taken.
    pub fn put(&mut self, number: Number, report: R, following: Vec<Step<J, R>>) {
        let place = self.line.iter().position(|(it, _)| *it == number);
        let place = place.expect("a job that was taken keeps its place");
        self.line[place].1 = Step::Report(report);
        for step in following.into_iter().rev() {
            self.insert(place + 1, step);
        }
    }

    /// Reports whether the caller is to tell what is due, until [`Self::end_telling`]; nobody else
    /// is.
    pub fn begin_telling(&mut self) -> bool {
        let is_due = matches!(self.line.front(), Some((_, Step::Report(_))));
        let begins = is_due && !self.is_telling;
        self.is_telling |= begins;
        begins
    }

    /// The report that is to be told next, if it is due and fits.
    pub fn next_report(&mut self, fits: impl FnOnce(&R) -> bool) -> Option<R> {
        match self.line.pop_front()? {
            (_, Step::Report(report)) if fits(&report) => Some(report),
            other => {
                self.line.push_front(other);
                None
            }
        }
    }

    /// These jobs come before all others.
    pub fn put_first(&mut self, jobs: impl DoubleEndedIterator<Item = J>) {
        jobs.rev().for_each(|job| self.insert(0, Step::Job(job)));
    }

    /// The caller tells no more, unless something is due again: then this is `false`.
    pub fn end_telling(&mut self) -> bool {
        self.is_telling = matches!(self.line.front(), Some((_, Step::Report(_))));
        !self.is_telling
    }

    /// Reports whether everything was done and handed out to be told.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    fn insert(&mut self, place: usize, step: Step<J, R>) {
        self.last += 1;
        self.line.insert(place, (self.last, step));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A tree by the number of children of each node, in preorder.
    fn told_by_one(children: &mut impl Iterator<Item = usize>, path: &[usize]) -> Vec<Vec<usize>> {
        let mut told = vec![path.to_vec()];
        for child in 0..children.next().unwrap_or(0) {
            told.extend(told_by_one(children, &[path, &[child]].concat()));
        }
        told
    }

    #[test]
    fn only_what_is_near_the_front_is_taken() {
        let mut plan: Plan<usize, ()> = Plan::new(0);
        plan.put_first(1..=2 * LOOK_AHEAD);
        assert_eq!(plan.job_count(), LOOK_AHEAD);
        let taken: Vec<usize> = std::iter::from_fn(|| plan.take()).map(|(_, job)| job).collect();
        assert_eq!(taken, (1..=LOOK_AHEAD).collect::<Vec<_>>());
        assert_eq!(plan.job_count(), 0);
    }

    #[test]
    fn one_tells_at_a_time_and_none_stops_while_something_is_due() {
        let mut plan: Plan<(), char> = Plan::new(());
        assert!(!plan.begin_telling(), "nothing is done");
        let (number, ()) = plan.take().unwrap();
        plan.put(number, 'a', vec![Step::Report('b')]);
        assert!(plan.begin_telling());
        assert!(!plan.begin_telling(), "somebody does");
        assert_eq!(plan.next_report(|_| false), None);
        assert_eq!(plan.next_report(|_| true), Some('a'));
        assert!(!plan.end_telling(), "b is due");
        assert_eq!(plan.next_report(|_| true), Some('b'));
        assert!(plan.is_empty() && plan.end_telling());
    }

    proptest! {
        /// Whichever jobs are done first, and whenever reports are told.
        #[test]
        fn a_tree_is_told_as_if_one_had_walked_it(
            children in prop::collection::vec(0..4_usize, 1..60),
            turns in prop::collection::vec(any::<prop::sample::Index>(), 1..2000),
        ) {
            let by_path: std::collections::HashMap<_, _> = {
                let told = told_by_one(&mut children.iter().copied(), &[]);
                told.into_iter().zip(children.iter().copied().chain(std::iter::repeat(0))).collect()
            };
            let expected = told_by_one(&mut children.iter().copied(), &[]);
            let mut plan = Plan::new(Vec::new());
            let (mut taken, mut told) = (Vec::new(), Vec::new());
            let mut step = 0;
            while !plan.is_empty() {
                // When all turns were taken, everybody gets his.
                step += 1;
                let turn = turns.get(step);
                match turn.map_or(step % 3, |turn| turn.index(3)) {
                    0 => taken.extend(plan.take()),
                    1 if !taken.is_empty() => {
                        let which = turn.map_or(0, |turn| turn.index(taken.len()));
                        let (number, path): (Number, Vec<usize>) = taken.swap_remove(which);
                        let child = |it| Step::Job([path.as_slice(), &[it]].concat());
                        let following = (0..by_path[&path]).map(child).collect();
                        plan.put(number, path, following);
                    }
                    _ => if plan.begin_telling() {
                        told.extend(std::iter::from_fn(|| plan.next_report(|_| true)));
                        prop_assert!(plan.end_telling());
                    },
                }
            }
            prop_assert_eq!(told, expected);
        }
    }
}
