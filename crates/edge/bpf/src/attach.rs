//! Attachment of programs to interfaces, held by file descriptors.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use fairpath_units::IfIndex;
use libbpf_rs::{AsRawLibbpf, Link, ProgramMut};

use crate::names::name_of;
use crate::{stage, tcx};

/// The hook of a program on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// tcx ingress: after XDP and GRO, before the stack.
    TcxIngress,
    /// tcx egress: before the interface's qdisc.
    TcxEgress,
    /// XDP, in the driver if supported, otherwise generic.
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
#[error("attach {hook} to \"{name}\" (ifindex {ifindex}): {source}; {}", remedy(.source, .existing.as_ref()))]
pub struct AttachError {
    /// The hook.
    pub hook: Hook,
    /// The interface.
    pub name: String,
    /// Its index.
    pub ifindex: IfIndex,
    /// The error of the kernel.
    pub source: std::io::Error,
    /// The existing XDP program, if that is the reason.
    pub existing: Option<ExistingProgram>,
}

/// An existing XDP program, which is not replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExistingProgram {
    /// Its id, as `bpftool prog` shows it.
    pub id: u32,
    /// Its name, up to 15 characters; empty without a name or permission.
    pub name: String,
}

impl std::fmt::Display for ExistingProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "the XDP program with id {}", self.id),
            name => write!(f, "the XDP program {name:?} (id {})", self.id),
        }
    }
}

fn remedy(error: &std::io::Error, existing: Option<&ExistingProgram>) -> String {
    match existing {
        Some(existing) => format!("{existing} holds this hook; stop its owner, or detach it"),
        None => remedy_of(error).to_owned(),
    }
}

fn remedy_of(error: &std::io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "needs CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON",
        Some(libc::EBUSY) => "another program holds this hook (`ip link show` names it); detach it",
        Some(libc::ENODEV) => "the interface was removed",
        Some(libc::EINVAL) => {
            "the kernel lacks this hook (Linux 6.6 has tcx); see `fairpath features`"
        }
        Some(libc::ERANGE | libc::EOPNOTSUPP) => {
            "the driver refuses XDP in this state (MTU, channels)"
        }
        _ => "see `fairpath features`",
    }
}

/// A program on an interface; dropping it detaches.
#[derive(Debug)]
pub struct Attached {
    by: By,
}

#[derive(Debug)]
enum By {
    /// A separate link.
    Link(Link),
    /// A stage of the interface's XDP program.
    Stage(stage::Held),
}

impl Attached {
    /// By a separate link.
    fn of_link(link: Link) -> Attached {
        Attached { by: By::Link(link) }
    }

    pub(crate) fn of_stage(held: stage::Held) -> Attached {
        Attached {
            by: By::Stage(held),
        }
    }

    /// Keeps the attachment after the end of this process, by a pin in a bpffs; for a stage, by
    /// two: the second has the suffix `-link`.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn pin(self, path: &std::path::Path) -> Result<(), libbpf_rs::Error> {
        match self.by {
            By::Link(mut link) => link.pin(path),
            By::Stage(held) => held.pin(path),
        }
    }

    /// The XDP program of the interface, if this is a stage of it.
    pub(crate) fn root(&self) -> Option<BorrowedFd<'_>> {
        match &self.by {
            By::Link(_) => None,
            By::Stage(held) => Some(held.root()),
        }
    }
}

/// Attaches `program` to `hook` of an interface of the current network namespace; at tcx before
/// existing programs. A program ahead that returns `TCX_PASS` would hide every packet. Only rules stay
/// ahead: the others are to see what they change.
pub(crate) fn attach(
    program: &mut ProgramMut<'_>,
    hook: Hook,
    ifindex: IfIndex,
    name: &str,
) -> Result<Attached, AttachError> {
    let raw = program.as_libbpf_object().as_ptr();
    let index = ifindex.0 as i32;
    let mut first = libbpf_sys::bpf_tcx_opts {
        sz: size_of::<libbpf_sys::bpf_tcx_opts>() as libbpf_sys::size_t,
        flags: libbpf_sys::BPF_F_BEFORE,
        ..libbpf_sys::bpf_tcx_opts::default()
    };
    if let Some(id) = tcx::ahead_of(program, ifindex, hook) {
        first.flags = libbpf_sys::BPF_F_AFTER;
        first.relative_id = id;
    }
    let link = match hook {
        // SAFETY: `raw` is a loaded program; the options live through the call.
        Hook::TcxIngress | Hook::TcxEgress => unsafe {
            libbpf_sys::bpf_program__attach_tcx(raw, index, &raw const first)
        },
        // SAFETY: `raw` is a loaded program; the link is a bpf_link, not netlink's attachment.
        Hook::Xdp => unsafe { libbpf_sys::bpf_program__attach_xdp(raw, index) },
    };
    let Some(link) = NonNull::new(link) else {
        let source = std::io::Error::last_os_error();
        return Err(AttachError {
            existing: (hook == Hook::Xdp)
                .then(|| existing(&source, ifindex))
                .flatten(),
            hook,
            name: name.to_owned(),
            ifindex,
            source,
        });
    };
    // SAFETY: a fresh link that nothing else owns.
    let link = unsafe { Link::from_ptr(link) };
    tcx::is_ours(program);
    Ok(Attached::of_link(link))
}

/// The existing program, if the kernel reports one.
pub(crate) fn existing(error: &std::io::Error, ifindex: IfIndex) -> Option<ExistingProgram> {
    if !matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) {
        return None;
    }
    let mut id = 0;
    // SAFETY: writes the id; no flags means: in any mode.
    let result = unsafe { libbpf_sys::bpf_xdp_query_id(ifindex.0 as i32, 0, &mut id) };
    (result == 0 && id != 0).then(|| ExistingProgram {
        name: name_of(id).unwrap_or_default(),
        id,
    })
}

/// The kernel's description of a loaded program.
pub(crate) fn info_of(program: BorrowedFd<'_>) -> Option<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = size_of_val(&info) as u32;
    let to = (&raw mut info).cast();
    // SAFETY: `to` points to `len` writable bytes; all pointers in them are null.
    let result = unsafe { libbpf_sys::bpf_obj_get_info_by_fd(program.as_raw_fd(), to, &mut len) };
    (result == 0).then_some(info)
}
