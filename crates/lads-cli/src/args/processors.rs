//! Option for the share of the processors that LADS uses.

use lads_core::cpu_share::CpuShare;

/// Options of `lads cp` and `lads check` about processors.
#[derive(clap::Args, Debug)]
pub(crate) struct ProcessorArgs {
    /// Maximum processor time of each end: 50% of its host's processors, or 1.5 processors
    ///
    /// Counted is the time of LADS's own threads, and of the kernel in their calls. Threads wait
    /// before their next block; a transfer that needs less is not slowed down. Within one host,
    /// both ends together may use twice as much.
    #[arg(long, value_name = "SHARE", help_heading = super::STORAGE)]
    #[arg(value_parser = CpuShare::parse)]
    pub(crate) max_cpu: Option<CpuShare>,
}
