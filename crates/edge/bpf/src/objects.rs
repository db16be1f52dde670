//! Loads every object of the binary, to test whether this kernel's verifier accepts it.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, ProgramInput};

use crate::skel;

/// The verdict of passed frames.
const XDP_PASS: u32 = 2;

/// The result for one object.
#[derive(Debug)]
pub struct Loaded {
    /// File in bpf/prog, without endings.
    pub name: &'static str,
    /// The verifier's refusal, if any.
    pub result: Result<(), libbpf_rs::Error>,
}

fn load_rtt() -> Result<(), libbpf_rs::Error> {
    let mut place = MaybeUninit::uninit();
    let mut open = skel::rtt::RttSkelBuilder::default().open(&mut place)?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.forwarding = 1;
    }
    open.maps.arena.set_max_entries(16)?;
    open.maps
        .arena
        .set_map_extra(crate::arena::next_address())?;
    open.load().map(drop)
}

fn load_pifo() -> Result<(), libbpf_rs::Error> {
    let mut place = MaybeUninit::uninit();
    let mut open = skel::pifo::PifoSkelBuilder::default().open(&mut place)?;
    open.maps.arena.set_max_entries(16)?;
    open.maps
        .arena
        .set_map_extra(crate::arena::next_address())?;
    open.load().map(drop)
}

fn load_limit() -> Result<(), libbpf_rs::Error> {
    let mut place = MaybeUninit::uninit();
    let mut open = skel::limit::LimitSkelBuilder::default().open(&mut place)?;
    open.maps.arena.set_max_entries(16)?;
    open.maps
        .arena
        .set_map_extra(crate::arena::next_address())?;
    open.load().map(drop)
}

fn load_rules() -> Result<(), libbpf_rs::Error> {
    let mut place = MaybeUninit::uninit();
    let mut open = skel::rules::RulesSkelBuilder::default().open(&mut place)?;
    open.maps.arena.set_max_entries(16)?;
    open.maps
        .arena
        .set_map_extra(crate::arena::next_address())?;
    open.load().map(drop)
}

fn load_rules_hook() -> Result<(), libbpf_rs::Error> {
    let mut place = MaybeUninit::uninit();
    let mut open = skel::rules_hook::RulesHookSkelBuilder::default().open(&mut place)?;
    open.maps.arena.set_max_entries(16)?;
    open.maps
        .arena
        .set_map_extra(crate::arena::next_address())?;
    open.load().map(drop)
}

fn load_pifo_bench() -> Result<(), libbpf_rs::Error> {
    let mut place = MaybeUninit::uninit();
    let mut open = skel::pifo_bench::PifoBenchSkelBuilder::default().open(&mut place)?;
    open.maps.arena.set_max_entries(16)?;
    open.maps
        .arena
        .set_map_extra(crate::arena::next_address())?;
    open.load().map(drop)
}

fn load_wake_bench() -> Result<(), libbpf_rs::Error> {
    let mut place = MaybeUninit::uninit();
    skel::wake_bench::WakeBenchSkelBuilder::default()
        .open(&mut place)?
        .load()
        .map(drop)
}

fn load_empty() -> Result<(), libbpf_rs::Error> {
    let mut place = MaybeUninit::uninit();
    skel::empty::EmptySkelBuilder::default()
        .open(&mut place)?
        .load()
        .map(drop)
}

fn load_drop() -> Result<(), libbpf_rs::Error> {
    let mut place = MaybeUninit::uninit();
    skel::drop::DropSkelBuilder::default()
        .open(&mut place)?
        .load()
        .map(drop)
}

fn load_impair() -> Result<(), libbpf_rs::Error> {
    let mut place = MaybeUninit::uninit();
    skel::impair::ImpairSkelBuilder::default()
        .open(&mut place)?
        .load()
        .map(drop)
}

fn load_inject() -> Result<(), libbpf_rs::Error> {
    let mut place = MaybeUninit::uninit();
    skel::inject::InjectSkelBuilder::default()
        .open(&mut place)?
        .load()
        .map(drop)
}

fn load_mark() -> Result<(), libbpf_rs::Error> {
    let mut place = MaybeUninit::uninit();
    let mut open = skel::mark::MarkSkelBuilder::default().open(&mut place)?;
    open.maps.arena.set_max_entries(16)?;
    open.maps
        .arena
        .set_map_extra(crate::arena::next_address())?;
    open.load().map(drop)
}

fn load_netfilter() -> Result<(), libbpf_rs::Error> {
    let mut place = MaybeUninit::uninit();
    skel::netfilter::NetfilterSkelBuilder::default()
        .open(&mut place)?
        .load()
        .map(drop)
}

fn load_programs() -> Result<(), libbpf_rs::Error> {
    let mut place = MaybeUninit::uninit();
    skel::programs::ProgramsSkelBuilder::default()
        .open(&mut place)?
        .load()
        .map(drop)
}

fn load_recoveries() -> Result<(), libbpf_rs::Error> {
    let mut place = MaybeUninit::uninit();
    skel::recoveries::RecoveriesSkelBuilder::default()
        .open(&mut place)?
        .load()
        .map(drop)
}

fn load_redirect() -> Result<(), libbpf_rs::Error> {
    let mut place = MaybeUninit::uninit();
    skel::redirect::RedirectSkelBuilder::default()
        .open(&mut place)?
        .load()
        .map(drop)
}

/// With a program in each stage, run once without attaching.
fn load_xdp() -> Result<(), libbpf_rs::Error> {
    let mut places = [const { MaybeUninit::uninit() }; 4];
    let [root, impair, rtt, redirect] = &mut places;
    let mut root = skel::xdp::XdpSkelBuilder::default().open(root)?;
    if let Some(rodata) = root.maps.rodata_data.as_deref_mut() {
        rodata.xdp_stages = 0b1111;
    }
    let root = root.load()?;
    let impair = skel::impair::ImpairSkelBuilder::default()
        .open(impair)?
        .load()?;
    let redirect = skel::redirect::RedirectSkelBuilder::default()
        .open(redirect)?
        .load()?;
    let mut rtt = skel::rtt::RttSkelBuilder::default().open(rtt)?;
    rtt.maps.arena.set_max_entries(16)?;
    rtt.maps.arena.set_map_extra(crate::arena::next_address())?;
    for mut program in rtt.open_object_mut().progs_mut() {
        let wanted = program.name() == "rtt_xdp";
        program.set_autoload(wanted);
    }
    let rtt = rtt.load()?;
    for (stage, program) in [
        (&root.maps.stage_impair, impair.progs.impair.as_fd()),
        (&root.maps.stage_measure, rtt.progs.rtt_xdp.as_fd()),
        (&root.maps.stage_forward, redirect.progs.redirect.as_fd()),
    ] {
        let fd = program.as_raw_fd().to_ne_bytes();
        stage.update(&0u32.to_ne_bytes(), &fd, MapFlags::ANY)?;
    }
    let input = ProgramInput {
        data_in: Some(&[0; 64]),
        ..ProgramInput::default()
    };
    match root.progs.fairpath_xdp.test_run(input)?.return_value {
        XDP_PASS => Ok(()),
        verdict => Err(std::io::Error::other(format!("the XDP stages returned {verdict}")).into()),
    }
}

/// If the kernel has BPF qdiscs.
fn load_qdisc() -> Option<Loaded> {
    crate::probe::bpf_qdisc().ok().map(|()| Loaded {
        name: "qdisc",
        result: crate::qdisc::load_object(),
    })
}

/// If the kernel has congestion controls in BPF.
fn load_cc_bbr3() -> Option<Loaded> {
    crate::probe::bpf_tcp_cc().ok().map(|()| Loaded {
        name: "cc_bbr3",
        result: crate::bbr3like::load_object(),
    })
}

/// Loads once each object for which this kernel has a hook, and attaches nothing. Needs CAP_BPF,
/// CAP_PERFMON and CAP_NET_ADMIN.
pub fn load_all() -> Vec<Loaded> {
    let mut all = vec![
        Loaded {
            name: "drop",
            result: load_drop(),
        },
        Loaded {
            name: "empty",
            result: load_empty(),
        },
        Loaded {
            name: "impair",
            result: load_impair(),
        },
        Loaded {
            name: "inject",
            result: load_inject(),
        },
        Loaded {
            name: "limit",
            result: load_limit(),
        },
        Loaded {
            name: "mark",
            result: load_mark(),
        },
        Loaded {
            name: "pifo",
            result: load_pifo(),
        },
        Loaded {
            name: "pifo_bench",
            result: load_pifo_bench(),
        },
        Loaded {
            name: "netfilter",
            result: load_netfilter(),
        },
        Loaded {
            name: "programs",
            result: load_programs(),
        },
        Loaded {
            name: "recoveries",
            result: load_recoveries(),
        },
        Loaded {
            name: "redirect",
            result: load_redirect(),
        },
        Loaded {
            name: "rtt",
            result: load_rtt(),
        },
        Loaded {
            name: "rules",
            result: load_rules(),
        },
        Loaded {
            name: "rules_hook",
            result: load_rules_hook(),
        },
        Loaded {
            name: "sched",
            result: crate::sched::load_shipped(),
        },
        Loaded {
            name: "wake_bench",
            result: load_wake_bench(),
        },
        Loaded {
            name: "xdp",
            result: load_xdp(),
        },
    ];
    all.extend(load_cc_bbr3());
    all.extend(load_qdisc());
    all
}
