//! Runs the probes of the table and interprets their results.
//!
//! A refusal without permission is "unknown", never "no".

use std::ffi::OsString;
use std::io;

use fairpath_bpf::probe::{self, AfXdpMode, ENOTSUPP, XdpPlace};
use fairpath_netlink::{NetlinkError, NewLink, bind_nfqueue, create_ppp, create_tun};
use fairpath_units::IfIndex;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket, sockopt};

use super::host::Host;
use super::interface::Interface;
use super::scratch::{self, NoScratch, Owner, Scratch};
use super::table::{FEATURES, Feature};

/// The trial of a feature.
pub enum Probe {
    /// Without an interface.
    Here(fn() -> io::Result<()>),
    /// With the facts of host and user.
    Host(fn(&Host) -> Result<String, Refusal>),
    /// In the temporary namespace.
    Scratch(fn(&mut Scratch) -> Result<String, Refusal>),
    /// By the features that drivers report.
    Drivers(fn(&[Interface]) -> Result<String, Refusal>),
}

/// Why an attempt failed.
#[derive(Clone, Debug)]
pub struct Refusal {
    errno: Option<Errno>,
    text: String,
}

/// The result of one feature.
pub struct Finding {
    pub feature: &'static Feature,
    /// `None`: unknown.
    pub available: Option<bool>,
    /// The error, or a detail.
    pub detail: String,
    /// The remedy; empty if it is available.
    pub remedy: Option<String>,
}

/// The result of the feature `id`.
pub fn is_available(findings: &[Finding], id: &str) -> Option<bool> {
    findings.iter().find(|f| f.feature.id == id)?.available
}

/// Tries all features, those in the temporary namespace last. Results have the order of the table.
pub fn run(host: &Host, interfaces: &[Interface]) -> Vec<Finding> {
    let mut findings: Vec<Option<Finding>> = FEATURES
        .iter()
        .map(|feature| outside(feature, host, interfaces))
        .collect();
    let tried = scratch::inside(host, |scratch, owner| {
        let scratch_features = FEATURES.iter().filter_map(|feature| match feature.probe {
            Probe::Scratch(attempt) => Some((feature, attempt)),
            _ => None,
        });
        scratch_features
            .map(|(feature, attempt)| judge_inside(feature, host, owner, attempt(scratch)))
            .collect::<Vec<_>>()
    });
    let mut tried = tried.map(Vec::into_iter);
    for (slot, feature) in findings.iter_mut().zip(FEATURES) {
        if slot.is_none() {
            *slot = match &mut tried {
                Ok(findings) => findings.next(),
                Err(NoScratch(reason)) => Some(unknown(feature, host, reason.clone())),
            };
        }
    }
    findings.into_iter().flatten().collect()
}

fn outside(feature: &'static Feature, host: &Host, interfaces: &[Interface]) -> Option<Finding> {
    let outcome = match feature.probe {
        Probe::Here(attempt) => attempt().map(|()| String::new()).map_err(Refusal::from),
        Probe::Host(attempt) => attempt(host),
        Probe::Drivers(attempt) => attempt(interfaces),
        Probe::Scratch(_) => return None,
    };
    Some(judge(feature, host, outcome))
}

/// A feature that works in a user namespace is in the kernel, but this user may not use it on real
/// interfaces.
fn judge_inside(
    feature: &'static Feature,
    host: &Host,
    owner: Owner,
    outcome: Result<String, Refusal>,
) -> Finding {
    match outcome {
        Ok(_) if owner == Owner::Unprivileged && !missing(feature, host).is_empty() => unknown(
            feature,
            host,
            "the kernel has it (tried in a user namespace), this user may not use it".to_owned(),
        ),
        outcome => judge(feature, host, outcome),
    }
}

fn judge(feature: &'static Feature, host: &Host, outcome: Result<String, Refusal>) -> Finding {
    let refusal = match outcome {
        Ok(detail) => {
            return Finding {
                feature,
                available: Some(true),
                detail,
                remedy: None,
            };
        }
        Err(refusal) => refusal,
    };
    let absent = match refusal.errno {
        None => true,
        Some(Errno::EACCES) => missing(feature, host).is_empty(),
        Some(errno) => means_absent(errno),
    };
    if !absent {
        return unknown(feature, host, refusal.text);
    }
    Finding {
        feature,
        available: Some(false),
        detail: refusal.text,
        remedy: Some(feature.remedy.to_owned()),
    }
}

fn unknown(feature: &'static Feature, host: &Host, detail: String) -> Finding {
    let missing = missing(feature, host);
    let remedy = match missing.is_empty() {
        true => {
            "check the restrictions of this process: container, seccomp filter, lockdown".to_owned()
        }
        false => format!("needs {}", missing.join(" + ")),
    };
    Finding {
        feature,
        available: None,
        detail,
        remedy: Some(remedy),
    }
}

/// The capabilities that the feature needs and this process lacks.
fn missing(feature: &Feature, host: &Host) -> Vec<&'static str> {
    let lacking = feature.needs.iter().filter(|name| !host.has(name));
    lacking.copied().collect()
}

/// Errors of a kernel without the feature. Others (memory, descriptors, busy) are no result.
fn means_absent(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ENOENT
            | Errno::EINVAL
            | Errno::EOPNOTSUPP
            | Errno::ENODEV
            | Errno::ENXIO
            | Errno::ENOSYS
            | Errno::E2BIG
            | Errno::ENOPROTOOPT
            | Errno::EPROTONOSUPPORT
            | Errno::EAFNOSUPPORT
    )
}

impl Refusal {
    /// Not available, with the reason.
    fn no(text: impl Into<String>) -> Refusal {
        Refusal {
            errno: None,
            text: text.into(),
        }
    }

    /// Unknown without permission.
    fn not_permitted(text: impl Into<String>) -> Refusal {
        Refusal {
            errno: Some(Errno::EPERM),
            text: text.into(),
        }
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Refusal {
        Refusal {
            errno: Some(errno),
            text: lower(errno.desc()),
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        match error.raw_os_error() {
            Some(ENOTSUPP) => Refusal::no("not supported by this kernel"),
            Some(number) => Errno::from_raw(number).into(),
            None => Refusal::no(error.to_string()),
        }
    }
}

impl From<NetlinkError> for Refusal {
    fn from(error: NetlinkError) -> Refusal {
        let errno = error.errno().map(Errno::from_raw);
        let cause = match (&error, errno) {
            (
                NetlinkError::Refused {
                    message: Some(text),
                    ..
                },
                _,
            ) => lower(text.trim_end_matches('.')),
            (_, Some(errno)) => lower(errno.desc()),
            (_, None) => error.to_string(),
        };
        Refusal {
            // An incomplete answer is no result.
            errno: errno.or(Some(Errno::EBADMSG)),
            text: cause,
        }
    }
}

/// As the second part of a sentence; abbreviations keep their capitals.
fn lower(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => text.to_owned(),
    }
}

/// Available, without details.
const DONE: Result<String, Refusal> = Ok(String::new());

pub fn cap_bpf(host: &Host) -> Result<String, Refusal> {
    capability(host, "CAP_BPF")
}

pub fn cap_perfmon(host: &Host) -> Result<String, Refusal> {
    capability(host, "CAP_PERFMON")
}

pub fn cap_net_admin(host: &Host) -> Result<String, Refusal> {
    capability(host, "CAP_NET_ADMIN")
}

fn capability(host: &Host, name: &str) -> Result<String, Refusal> {
    if host.has(name) {
        return DONE;
    }
    Err(Refusal::no(format!("{} does not have it", host.user)))
}

/// Sets the algorithm on a socket that sends nothing. The kernel loads its module only for `CAP_NET_ADMIN`.
pub fn congestion(host: &Host, name: &str) -> Result<String, Refusal> {
    let fd = socket(
        AddressFamily::Inet,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    match setsockopt(&fd, sockopt::TcpCongestion, &OsString::from(name)) {
        Ok(()) => DONE,
        Err(Errno::ENOENT) if !host.has("CAP_NET_ADMIN") => Err(Refusal::not_permitted(
            "not loaded, and only CAP_NET_ADMIN makes the kernel load it",
        )),
        Err(Errno::ENOENT) => Err(Refusal::no("the kernel does not support it")),
        Err(errno) => Err(errno.into()),
    }
}

/// The veth's index; without one, attempts that need it cannot be made.
fn veth_index(scratch: &Scratch) -> Result<IfIndex, Refusal> {
    let veth = scratch.veth.as_ref().map(|link| link.ifindex);
    veth.ok_or_else(|| Refusal::not_permitted("no veth to try it on"))
}

pub fn tcx(scratch: &mut Scratch) -> Result<String, Refusal> {
    probe::tcx(scratch.any_link())?;
    DONE
}

pub fn xdp_generic(scratch: &mut Scratch) -> Result<String, Refusal> {
    probe::xdp(veth_index(scratch)?, XdpPlace::Generic)?;
    DONE
}

pub fn xdp_native(scratch: &mut Scratch) -> Result<String, Refusal> {
    probe::xdp(veth_index(scratch)?, XdpPlace::Native)?;
    DONE
}

pub fn bpf_link_xdp(scratch: &mut Scratch) -> Result<String, Refusal> {
    let veth = veth_index(scratch)?;
    probe::xdp_link(veth, XdpPlace::Native)
        .or_else(|_| probe::xdp_link(veth, XdpPlace::Generic))?;
    DONE
}

pub fn netfilter_bpf(_: &mut Scratch) -> Result<String, Refusal> {
    probe::netfilter()?;
    DONE
}

pub fn af_xdp(scratch: &mut Scratch) -> Result<String, Refusal> {
    let veth = veth_index(scratch)?;
    probe::af_xdp(veth, AfXdpMode::Copy)?;
    Ok(match probe::af_xdp(veth, AfXdpMode::ZeroCopy) {
        Ok(()) => "copy mode; on veth also zero copy".to_owned(),
        Err(_) => "copy mode; veth has no zero copy".to_owned(),
    })
}

pub fn af_xdp_zero_copy(interfaces: &[Interface]) -> Result<String, Refusal> {
    let answers: Vec<(&str, bool)> = interfaces
        .iter()
        .filter_map(|i| Some((i.name.as_str(), i.xdp.driver?.zero_copy)))
        .collect();
    let able: Vec<&str> = answers
        .iter()
        .filter(|(_, zero_copy)| *zero_copy)
        .map(|(name, _)| *name)
        .collect();
    if answers.is_empty() {
        return Err(Refusal::not_permitted("the drivers cannot be queried"));
    }
    if able.is_empty() {
        return Err(Refusal::no("no interface's driver has it"));
    }
    Ok(able.join(", "))
}

pub fn nfqueue(_: &mut Scratch) -> Result<String, Refusal> {
    bind_nfqueue(0)?;
    DONE
}

/// Adds the qdisc and removes it again, so that the next finds the place free.
pub fn qdisc(scratch: &mut Scratch, kind: &str) -> Result<String, Refusal> {
    let link = scratch.any_link();
    scratch.tc.add_root(link, kind)?;
    scratch.tc.delete_root(link)?;
    DONE
}

pub fn clsact(scratch: &mut Scratch) -> Result<String, Refusal> {
    let link = scratch.any_link();
    scratch.tc.add_clsact(link)?;
    DONE
}

/// `clsact` is there from its own attempt; where that failed, so does this.
pub fn flower(scratch: &mut Scratch) -> Result<String, Refusal> {
    let link = scratch.any_link();
    scratch.tc.add_flower(link)?;
    DONE
}

pub fn veth(scratch: &mut Scratch) -> Result<String, Refusal> {
    if scratch.veth.is_some() {
        return DONE;
    }
    scratch.links.create(NewLink::Veth {
        name: "fpv0",
        peer: "fpv1",
    })?;
    DONE
}

pub fn vlan(scratch: &mut Scratch) -> Result<String, Refusal> {
    let lower = veth_index(scratch)?;
    scratch.links.create(NewLink::Vlan {
        name: "fpvlan",
        lower,
        id: 5,
    })?;
    DONE
}

pub fn plain_link(scratch: &mut Scratch, kind: &str) -> Result<String, Refusal> {
    scratch.links.create(NewLink::Plain {
        name: "fplink",
        kind,
    })?;
    if let Some(link) = scratch.links.by_name("fplink")? {
        scratch.links.delete(link.ifindex)?;
    }
    DONE
}

/// Names the file, which may be missing or closed to the user though the kernel has the feature.
fn character_device(path: &str, error: io::Error) -> Refusal {
    let refusal = Refusal::from(error);
    Refusal {
        text: format!("{path}: {}", refusal.text),
        ..refusal
    }
}

pub fn tun(_: &mut Scratch) -> Result<String, Refusal> {
    create_tun().map_err(|error| character_device("/dev/net/tun", error))?;
    DONE
}

pub fn ppp(_: &mut Scratch) -> Result<String, Refusal> {
    create_ppp().map_err(|error| character_device("/dev/ppp", error))?;
    DONE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(capabilities: Vec<&'static str>) -> Host {
        Host {
            kernel: String::new(),
            arch: "x86_64",
            cpus: 2,
            user: "nobody".to_owned(),
            capabilities,
        }
    }

    fn feature(id: &str) -> &'static Feature {
        FEATURES.iter().find(|f| f.id == id).unwrap()
    }

    fn verdict(id: &str, host: &Host, errno: Errno) -> Option<bool> {
        judge(feature(id), host, Err(errno.into())).available
    }

    #[test]
    fn lack_of_permission_is_unknown_not_unavailable() {
        let root = host(vec!["CAP_SYS_ADMIN", "CAP_NET_ADMIN"]);
        let nobody = host(vec![]);
        assert_eq!(verdict("netem", &nobody, Errno::EPERM), None);
        assert_eq!(verdict("netem", &root, Errno::ENOENT), Some(false));
        assert_eq!(verdict("tun", &nobody, Errno::EACCES), None);
        assert_eq!(verdict("arena", &root, Errno::EACCES), Some(false));
        assert_eq!(verdict("arena", &root, Errno::ENOMEM), None);
        let finding = judge(feature("arena"), &nobody, Err(Errno::EPERM.into()));
        assert_eq!(finding.remedy.unwrap(), "needs CAP_BPF + CAP_PERFMON");
    }

    #[test]
    fn two_runs_at_once_agree() {
        let host = Host::read().unwrap();
        if !host.has("CAP_SYS_ADMIN") {
            fairpath_units::skip_test(
                "two_runs_at_once_agree",
                "CAP_SYS_ADMIN",
                "needs CAP_SYS_ADMIN",
            );
            return;
        }
        let answers =
            || -> Vec<Option<bool>> { run(&host, &[]).into_iter().map(|f| f.available).collect() };
        let (one, two) = std::thread::scope(|scope| {
            let (one, two) = (scope.spawn(answers), scope.spawn(answers));
            (one.join().unwrap(), two.join().unwrap())
        });
        assert_eq!(one, two);
        assert_eq!(one.len(), FEATURES.len());
    }

    #[test]
    fn a_refusal_despite_all_capabilities_names_no_capability() {
        let root = host(vec!["CAP_SYS_ADMIN", "CAP_NET_ADMIN"]);
        let finding = judge(feature("tcx"), &root, Err(Errno::EPERM.into()));
        assert_eq!(finding.available, None);
        assert!(finding.remedy.unwrap().contains("seccomp"));
    }

    #[test]
    fn user_namespace_only_features_are_not_reported() {
        let nobody = host(vec![]);
        let inside = |owner| judge_inside(feature("htb"), &nobody, owner, DONE).available;
        assert_eq!(inside(Owner::Unprivileged), None);
        let missing = judge_inside(
            feature("netem"),
            &nobody,
            Owner::Unprivileged,
            Err(Errno::ENOENT.into()),
        );
        assert_eq!(missing.available, Some(false));
    }
}
