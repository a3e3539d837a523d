//! Options about the processors of both ends: how much of them LADS uses, and which.

use lads_core::cpu_list::Pin;
use lads_core::cpu_share::CpuShare;

/// What `lads cp` and `lads check` take about processors.
#[derive(clap::Args, Debug)]
pub(crate) struct ProcessorArgs {
    /// Maximum processor time of each end: 50% of its host's processors, or 1.5 processors
    ///
    /// Counted is the time of LADS's own threads, and of the kernel in their calls. Threads wait
    /// before their next block; a transfer that needs less is not slowed down. Within one host,
    /// both ends together may use twice as much.
    #[arg(long, value_name = "SHARE", help_heading = super::STORAGE, hide_short_help = true)]
    #[arg(value_parser = CpuShare::parse)]
    pub(crate) max_cpu: Option<CpuShare>,

    /// Run both ends on these processors: a list like 0-3,8, or node:0 for those of a NUMA node
    #[arg(long, value_name = "CPUS", help_heading = super::STORAGE, hide_short_help = true)]
    #[arg(value_parser = checked)]
    pin: Option<String>,

    /// Run the source on these processors, if not as --pin
    #[arg(long, value_name = "CPUS", help_heading = super::STORAGE, hide_short_help = true)]
    #[arg(value_parser = checked)]
    source_pin: Option<String>,

    /// Run the sink on these processors, if not as --pin
    #[arg(long, value_name = "CPUS", help_heading = super::STORAGE, hide_short_help = true)]
    #[arg(value_parser = checked)]
    sink_pin: Option<String>,
}

impl ProcessorArgs {
    /// Where the source runs; empty for anywhere.
    pub(crate) fn source_pin(&self) -> String {
        self.source_pin.as_ref().or(self.pin.as_ref()).cloned().unwrap_or_default()
    }

    /// Where the sink runs; empty for anywhere.
    pub(crate) fn sink_pin(&self) -> String {
        self.sink_pin.as_ref().or(self.pin.as_ref()).cloned().unwrap_or_default()
    }
}

/// Each end reads it again, because only the end knows which processors it has.
fn checked(text: &str) -> Result<String, String> {
    Pin::parse(text).map(|_| text.to_owned())
}
