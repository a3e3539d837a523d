//! What a host permits the other end of a transfer that asks it for something.

use crate::event::ExitCode;
use crate::fatal::{Fatal, own_host};
use crate::job::Assignment;
use crate::transport::seal::has_aes;
use lads_core::issue::Side;
use lads_core::offer::{Access, is_below_root};
use lads_core::protection::{DataLevel, Protection};
use lads_core::text::escape;

/// What this host permits the other end of a transfer.
pub struct Terms<'a> {
    /// Finds out how the settings of this host want data to be protected; it is called if the other
    /// end wants less than encrypted data.
    pub level: &'a dyn Fn() -> Result<DataLevel, String>,
    /// What a daemon offers the other end; `None` if a remote shell has let it in.
    pub offer: Option<Offer>,
}

/// What a daemon offers a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What it may do with files.
    pub access: Access,
    /// The ports for data connections, first and last; `None`: any.
    pub ports: Option<(u16, u16)>,
}

impl Offer {
    /// Checks what the other end wants, and replaces what is not its to decide.
    pub(super) fn apply_to(self, job: &mut Assignment) -> Result<(), Fatal> {
        let refused =
            |text: String| Fatal::new(ExitCode::Refused, format!("{}: {text}", own_host()));
        // Whoever may read may compare: the sink writes nothing then, and the kernel sees to that.
        let compares = job.options.dry_run && self.access.permits(Side::Source);
        if !self.access.permits(job.side) && !compares {
            return Err(refused(format!("your key permits only {} there", self.access)));
        }
        if let Some(path) = job.paths.iter().find(|path| !is_below_root(path)) {
            let path = escape(path);
            return Err(refused(format!("{path} is not below the directory that is offered")));
        }
        if job.connects {
            let text = "a daemon opens no connections: omit --connect, or name your own end";
            return Err(refused(text.to_owned()));
        }
        // Data that comes from another host is protected, whatever that host says of itself.
        job.is_local = false;
        if let Some((first, last)) = self.ports {
            (job.port_first, job.port_last) = (first, last);
        }
        Ok(())
    }
}

/// What protects data that goes between two hosts. A lower level than this host wants is refused.
pub(super) fn protection(assignment: &Assignment, terms: &Terms<'_>) -> Result<Protection, Fatal> {
    let (asked, has_aes) = (assignment.options.data, assignment.has_aes && has_aes());
    // Without a lower level, this host's settings are not looked for.
    if let Some(protection) = asked.protection(DataLevel::Encrypted, has_aes) {
        return Ok(protection);
    }
    let host = own_host();
    let own = (terms.level)();
    let own = own.map_err(|text| Fatal::new(ExitCode::Refused, format!("{host}: {text}")))?;
    asked.protection(own, has_aes).ok_or_else(|| {
        let remedy = match terms.offer {
            None => format!(
                ", or write data = \"{asked}\" into ~/.config/lads/config.toml or \
                 /etc/lads/config.toml there"
            ),
            Some(_) => format!(", or ask its administrator for data = \"{asked}\" for your key"),
        };
        let text = format!(
            "--data {asked} is refused by {host}, where data is {own}: omit --data here{remedy}"
        );
        Fatal::new(ExitCode::Refused, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Options;

    fn asked(side: Side, path: &str) -> Assignment {
        Assignment {
            side,
            paths: vec![b"run1".to_vec(), path.as_bytes().to_vec()],
            options: Options::default(),
            job_key: 7,
            host: String::new(),
            is_local: true,
            is_piped: false,
            connects: false,
            port_first: 80,
            port_last: 90,
            more_streams: 0,
            has_aes: true,
        }
    }

    /// A peer could call itself a process of this host, whose data is plain.
    #[test]
    fn a_peer_does_not_decide_on_ports_and_protection() {
        let mut job = asked(Side::Source, "run2");
        let offer = Offer { access: Access::Read, ports: Some((50_000, 50_009)) };
        offer.apply_to(&mut job).unwrap();
        assert!(!job.is_local);
        assert_eq!((job.port_first, job.port_last), (50_000, 50_009));
        let mut job = asked(Side::Source, "run2");
        Offer { access: Access::Read, ports: None }.apply_to(&mut job).unwrap();
        assert_eq!((job.is_local, job.port_first, job.port_last), (false, 80, 90));
    }

    #[test]
    fn a_peer_gets_nothing_that_is_not_offered() {
        let offer = Offer { access: Access::Read, ports: None };
        let refused = |job: &mut Assignment| offer.apply_to(job).unwrap_err();
        assert_eq!(refused(&mut asked(Side::Sink, "run2")).code, ExitCode::Refused);
        let dry = Options { dry_run: true, ..Options::default() };
        let mut compares = Assignment { options: dry, ..asked(Side::Sink, "run2") };
        offer.apply_to(&mut compares).unwrap();
        let writes = Offer { access: Access::Write, ports: None };
        assert_eq!(
            writes.apply_to(&mut asked(Side::Source, "run2")).unwrap_err().code,
            ExitCode::Refused
        );
        // It could reach hosts of the site that the peer does not.
        let mut back = Assignment { connects: true, ..asked(Side::Source, "run2") };
        assert!(refused(&mut back).text.contains("opens no connections"));
        for path in ["/etc", "../x", "a/../../x"] {
            let fatal = refused(&mut asked(Side::Source, path));
            assert_eq!(fatal.code, ExitCode::Refused);
            assert!(fatal.text.contains("is not below the directory that is offered"), "{fatal:?}");
        }
    }
}
