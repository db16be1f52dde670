//! Attachment of programs to interfaces, held by file descriptors.

use std::ptr::NonNull;

use fairpath_units::IfIndex;
use libbpf_rs::{AsRawLibbpf, Link, ProgramMut};

/// Where on an interface a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// tcx ingress: after XDP and GRO, before the stack.
    TcxIngress,
    /// tcx egress: before the interface's qdisc.
    TcxEgress,
    /// XDP, in the driver where it can, generic otherwise.
    Xdp,
}

impl std::fmt::Display for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Hook::TcxIngress => "tcx ingress",
            Hook::TcxEgress => "tcx egress",
            Hook::Xdp => "XDP",
        })
    }
}

/// A program could not be attached.
#[derive(Debug, thiserror::Error)]
#[error("attach {hook} to \"{name}\" (ifindex {ifindex}): {source}; {}", remedy(.source))]
pub struct AttachError {
    /// Where.
    pub hook: Hook,
    /// To which interface.
    pub name: String,
    /// Its index.
    pub ifindex: IfIndex,
    /// What the kernel said.
    pub source: std::io::Error,
}

fn remedy(error: &std::io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "needs CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON",
        Some(libc::EBUSY) => {
            "another program holds this hook (`ip link show` names it); detach it or choose --hook tcx"
        }
        Some(libc::ENODEV) => "the interface is gone",
        Some(libc::EINVAL) => {
            "the kernel lacks this hook (Linux 6.6 has tcx); see `fairpath features`"
        }
        Some(libc::ERANGE | libc::EOPNOTSUPP) => {
            "the driver refuses XDP in this state (MTU, channels); choose --hook tcx"
        }
        _ => "see `fairpath features`",
    }
}

/// A program on an interface; dropping it detaches.
#[derive(Debug)]
pub struct Attached {
    _link: Link,
}

/// Attaches `program` to `hook` of an interface of the current network namespace.
pub(crate) fn attach(
    program: &mut ProgramMut<'_>,
    hook: Hook,
    ifindex: IfIndex,
    name: &str,
) -> Result<Attached, AttachError> {
    let raw = program.as_libbpf_object().as_ptr();
    let index = ifindex.0 as i32;
    let link = match hook {
        // SAFETY: `raw` is a loaded program; no options means: append behind what is there.
        Hook::TcxIngress | Hook::TcxEgress => unsafe {
            libbpf_sys::bpf_program__attach_tcx(raw, index, std::ptr::null())
        },
        // SAFETY: `raw` is a loaded program; the link is a bpf_link, not netlink's attachment.
        Hook::Xdp => unsafe { libbpf_sys::bpf_program__attach_xdp(raw, index) },
    };
    let Some(link) = NonNull::new(link) else {
        let source = std::io::Error::last_os_error();
        return Err(AttachError {
            hook,
            name: name.to_owned(),
            ifindex,
            source,
        });
    };
    // SAFETY: a fresh link that nothing else owns.
    let link = unsafe { Link::from_ptr(link) };
    Ok(Attached { _link: link })
}
