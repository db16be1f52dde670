//! Compiles bpf/prog; typed skeletons, attachment by file descriptor, feature probes.
//!
//! A file descriptor of this process holds every attachment (`bpf_link`, also for XDP). So all
//! programs and maps end with the process in any case. The exceptions are explicit: shaping by the
//! kernel outlives the daemon with [`Mark::attach_pinned`], and rules their command with
//! [`HookRules::pin`].

mod arena;
mod attach;
pub mod author;
mod bbr3like;
pub mod cost;
mod drop;
mod forward;
mod impair;
mod inject;
mod limit;
mod mark;
mod names;
mod netfilter;
mod netns;
mod objects;
mod pass;
mod pifo;
mod pifo_bench;
mod pin;
pub mod probe;
mod qdisc;
mod recoveries;
mod redirect;
mod replay;
mod rtt;
mod rules;
mod rules_hook;
mod sched;
mod stack_sent;
mod stage;
mod tcx;
mod wake_bench;

pub use attach::{AttachError, Attached, ExistingProgram, Hook};
pub use bbr3like::{BBR3LIKE, Bbr3Counts, Bbr3Error, Bbr3Like, Bbr3Phase};
pub use drop::{DropError, Dropper};
pub use forward::{
    EXIT_QUEUES, EXITS, Exit, ExitOutcomes, ForwardError, ForwardOutcome, ForwardPlan, Forwarding,
    Ran, SenderCheck,
};
pub use impair::{Loss, LossCounts, LossError, LossOptions};
pub use inject::{Arrived, Fan, InjectError, Injector, Side, Sink, Traffic};
pub use limit::{KernelLimitError, KernelLimits, LimitSpin};
pub use mark::{Mark, MarkCount, MarkError, MarkOptions, MarkTo, QueueFlows, Took};
pub use names::has_map;
pub use netfilter::{HookedProgram, netfilter_programs};
pub use netns::netns_cookie;
pub use objects::{Loaded, load_all};
pub use pass::Passer;
pub use pifo::{KernelPool, PoolError};
pub use pifo_bench::{QueueBench, QueueBenchError, Variant};
pub use pin::{PinError, Pins};
pub use qdisc::{
    BpfQdisc, QDISC_POLICIES, QdiscContent, QdiscCounters, QdiscError, QdiscOptions, QdiscPolicy,
    qdisc_names, without_marks,
};
pub use recoveries::{Recoveries, RecoveriesError, RecoveryCounts};
pub use redirect::{MAX_SOCKETS, Outcomes, Redirect, RedirectError, RedirectOptions};
pub use rtt::{Batch, LoadError, Options, READ_EVERY, RttMonitor, RunError};
pub use rules::{KernelRules, RUN_PACKETS, RulesError, STREAM_BYTES, STREAM_PACKETS};
pub use rules_hook::{
    AnswerLock, Comparison, Disagreement, Editable, EditedSet, Event, EventCursor, FILTER_WORDS,
    FrameFamily, HOOK_FAMILIES, HookCounts, HookError, HookLock, HookPlace, HookRules, HookSet,
    IP_FAMILIES, NewRules, Occurrence, RejectedFacts, RulesEdit, SHADOW_EXAMPLES, SHADOW_ROWS,
    ShadowKind, ShadowOutcomes, ShadowPacket, Trace, TraceFilter, Traced, hook_time,
};
pub use sched::SchedRun;
pub use stack_sent::{Sent, StackSent};
pub use stage::Stage;
pub use tcx::{TcxProgram, tcx_ahead, tcx_programs};
pub use wake_bench::{KernelTimer, WakeError};

/// Suppresses libbpf's messages, which our own errors repeat, unless `FAIRPATH_LIBBPF_LOG` is set.
pub fn quiet_libbpf() {
    if std::env::var_os("FAIRPATH_LIBBPF_LOG").is_none() {
        libbpf_rs::set_print(None);
    }
}

/// Skeletons of bpf/prog, one module per file.
mod skel {
    #![allow(
        missing_docs,
        dead_code,
        clippy::all,
        clippy::undocumented_unsafe_blocks,
        clippy::multiple_unsafe_ops_per_block
    )]
    pub mod rtt {
        include!(concat!(env!("OUT_DIR"), "/rtt.skel.rs"));
    }
    pub mod cc_bbr3 {
        include!(concat!(env!("OUT_DIR"), "/cc_bbr3.skel.rs"));
    }
    pub mod drop {
        include!(concat!(env!("OUT_DIR"), "/drop.skel.rs"));
    }
    pub mod impair {
        include!(concat!(env!("OUT_DIR"), "/impair.skel.rs"));
    }
    pub mod inject {
        include!(concat!(env!("OUT_DIR"), "/inject.skel.rs"));
    }
    pub mod limit {
        include!(concat!(env!("OUT_DIR"), "/limit.skel.rs"));
    }
    pub mod mark {
        include!(concat!(env!("OUT_DIR"), "/mark.skel.rs"));
    }
    pub mod pifo {
        include!(concat!(env!("OUT_DIR"), "/pifo.skel.rs"));
    }
    pub mod rules {
        include!(concat!(env!("OUT_DIR"), "/rules.skel.rs"));
    }
    pub mod rules_hook {
        include!(concat!(env!("OUT_DIR"), "/rules_hook.skel.rs"));
    }
    pub mod pifo_bench {
        include!(concat!(env!("OUT_DIR"), "/pifo_bench.skel.rs"));
    }
    pub mod netfilter {
        include!(concat!(env!("OUT_DIR"), "/netfilter.skel.rs"));
    }
    pub mod programs {
        include!(concat!(env!("OUT_DIR"), "/programs.skel.rs"));
    }
    pub mod recoveries {
        include!(concat!(env!("OUT_DIR"), "/recoveries.skel.rs"));
    }
    pub mod redirect {
        include!(concat!(env!("OUT_DIR"), "/redirect.skel.rs"));
    }
    pub mod wake_bench {
        include!(concat!(env!("OUT_DIR"), "/wake_bench.skel.rs"));
    }
    pub mod xdp {
        include!(concat!(env!("OUT_DIR"), "/xdp.skel.rs"));
    }
    pub mod empty {
        include!(concat!(env!("OUT_DIR"), "/empty.skel.rs"));
    }
}
