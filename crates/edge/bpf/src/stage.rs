//! One XDP program an interface, whose stages are programs of several owners (bpf/prog/xdp.bpf.c).
//!
//! ```text
//!   fairpath_xdp:  impair ─ measure ─ rules ─ forward          each a map of one program
//! ```
//!
//! The owner of a stage holds its map and the link of the root. The kernel empties the map when its
//! last descriptor or pin is closed, and detaches the root when that of the link is. So a stage
//! ends with its owner in any case, and the root with the last one.
//!
//! Invariant: **the map of a stage has only one owner, ever.** A process that joins loads the root
//! again, with a new map for its own stage and the maps of the others, and replaces the program in
//! the link at once. Otherwise, the kernel could empty the map of a dead owner a moment later, with
//! the program of the next owner in it. A lock on the network namespace prevents two processes from
//! joining at the same time. Any process may hold that lock, so it only saves work: the link
//! accepts a new program only as a replacement of the one that was read before.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fairpath_units::IfIndex;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, ProgramMut};
use nix::fcntl::{Flock, FlockArg};

use crate::attach::{self, AttachError, Attached, ExistingProgram, Hook};
use crate::names::name_of;
use crate::pin::{self, PinError, pin_object};
use crate::skel::xdp::XdpSkelBuilder;

/// The name of the root, which identifies it.
const ROOT: &str = "fairpath_xdp";
/// Timeout for the end of a stage after its owner. The kernel takes some milliseconds.
const GOING: Duration = Duration::from_millis(250);
/// Timeout for other processes that join.
const JOINING: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// A step of XDP, in the order of processing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Drops packets like a link with loss.
    Impair,
    /// Measures.
    Measure,
    /// Drops what rules would drop.
    Rules,
    /// Sends packets past the stack.
    Forward,
}

const STAGES: [(Stage, &str); 4] = [
    (Stage::Impair, "stage_impair"),
    (Stage::Measure, "stage_measure"),
    (Stage::Rules, "stage_rules"),
    (Stage::Forward, "stage_forward"),
];

impl Stage {
    /// True if a test shows that both work on one interface as they do alone.
    fn composes_with(self, other: Stage) -> bool {
        matches!(
            (self, other),
            (Stage::Impair, Stage::Measure) | (Stage::Measure, Stage::Impair)
        )
    }
}

/// A stage on an interface. Dropping it ends the stage, and the last one ends the root.
#[derive(Debug)]
pub(crate) struct Held {
    map: OwnedFd,
    link: OwnedFd,
    root: OwnedFd,
    pinned: bool,
}

impl Held {
    /// The root that this owner loaded: the kernel counts the run time of its stages as the root's.
    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Keeps the stage after the end of this process, by a pin of its map, and of the link
    /// (`PATH-link`).
    pub(crate) fn pin(mut self, path: &Path) -> Result<(), libbpf_rs::Error> {
        pin_object(self.map.as_fd(), path)?;
        pin_object(self.link.as_fd(), &link_pin(path)).inspect_err(|_| {
            // A half pin would reserve the name permanently. The next owner reports this error.
            let _ = std::fs::remove_file(path);
        })?;
        self.pinned = true;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.pinned {
            // Empties it at once. If this fails, the kernel does it later.
            let key = 0u32;
            // SAFETY: reads four bytes of `key`.
            unsafe {
                libbpf_sys::bpf_map_delete_elem(self.map.as_raw_fd(), (&raw const key).cast())
            };
        }
    }
}

/// The path of the pin of the link, for the pin of the map at `path`.
fn link_pin(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-link");
    name.into()
}

/// Removes the pins of a stage, so that it ends. False if there were none.
pub(crate) fn unpin(path: &Path) -> Result<bool, PinError> {
    let map = pin::remove(path)?;
    Ok(pin::remove(&link_pin(path))? || map)
}

/// True if the root of a pinned stage is at an interface of the current network namespace.
pub(crate) fn is_there(path: &Path, ifindex: IfIndex) -> Result<bool, libbpf_rs::Error> {
    let link = link_pin(path);
    if !link.exists() || !path.exists() {
        return Ok(false);
    }
    let program = libbpf_rs::Link::open(link)?.info()?.prog_id;
    Ok(program_at(ifindex) == Some(program))
}

/// The id of the XDP program of an interface, in any mode. `None`: there is none, or no permission.
fn program_at(ifindex: IfIndex) -> Option<u32> {
    let mut id = 0;
    // SAFETY: writes the id; no flags means: in any mode.
    let result = unsafe { libbpf_sys::bpf_xdp_query_id(ifindex.0 as i32, 0, &mut id) };
    (result == 0 && id != 0).then_some(id)
}

/// Puts `program` into a stage of an interface of the current network namespace.
///
/// An error names another XDP program, which is not replaced. The same holds for a program of
/// another owner that cannot run with the stage.
pub(crate) fn attach(
    program: &mut ProgramMut<'_>,
    stage: Stage,
    ifindex: IfIndex,
    name: &str,
) -> Result<Attached, AttachError> {
    let refused = |Refused { source, existing }: Refused| AttachError {
        hook: Hook::Xdp,
        name: name.to_owned(),
        ifindex,
        source,
        existing,
    };
    let held = join(program.as_fd(), stage, ifindex).map_err(refused)?;
    Ok(Attached::of_stage(held))
}

/// Reasons of a refusal.
struct Refused {
    source: io::Error,
    existing: Option<ExistingProgram>,
}

impl Refused {
    /// The link has another program now, or the root could not be joined: its last owner has just
    /// ended, or another process installed it in the meantime.
    fn is_late(&self) -> bool {
        match self.source.raw_os_error() {
            Some(libc::ESTALE) => true,
            Some(libc::EBUSY) => self.existing.as_ref().is_some_and(|f| f.name == ROOT),
            _ => false,
        }
    }
}

impl From<io::Error> for Refused {
    fn from(source: io::Error) -> Refused {
        Refused {
            source,
            existing: None,
        }
    }
}

fn join(program: BorrowedFd<'_>, stage: Stage, ifindex: IfIndex) -> Result<Held, Refused> {
    let _lock = lock();
    let until = Instant::now() + GOING;
    loop {
        let there = Root::find(ifindex);
        let conflicting = there.as_ref().and_then(|root| root.conflicting_of(stage));
        match conflicting {
            None => match install(program, stage, ifindex, there) {
                // Another process joined without the lock: what was read is outdated.
                Err(refused) if refused.is_late() && Instant::now() < until => {}
                done => return done,
            },
            // Its owner may have just ended. Our descriptors of its map are closed in the meantime.
            Some(_) if Instant::now() < until => drop(there),
            Some(id) => {
                return Err(Refused {
                    source: io::Error::from_raw_os_error(libc::EBUSY),
                    existing: Some(ExistingProgram {
                        name: name_of(id).unwrap_or_default(),
                        id,
                    }),
                });
            }
        }
        std::thread::sleep(PAUSE);
    }
}

/// The lock of this network namespace: no other process joins in the meantime. `None`: another
/// process holds it.
fn lock() -> Option<Flock<File>> {
    let until = Instant::now() + JOINING;
    let mut space = File::open("/proc/thread-self/ns/net").ok()?;
    loop {
        match Flock::lock(space, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Some(lock),
            Err(_) if Instant::now() >= until => return None,
            Err((unlocked, _)) => space = unlocked,
        }
        std::thread::sleep(PAUSE);
    }
}

/// A root that is already attached.
struct Root {
    program: OwnedFd,
    link: OwnedFd,
    maps: [OwnedFd; STAGES.len()],
}

impl Root {
    /// `None`: no XDP program, another one, or no permission.
    fn find(ifindex: IfIndex) -> Option<Root> {
        let id = program_at(ifindex)?;
        if name_of(id)? != ROOT {
            return None;
        }
        // SAFETY: takes a number.
        let program = owned(unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) }).ok()?;
        let mut maps = maps_of(program.as_fd())?;
        let mut take = |wanted: &str| {
            let at = maps.iter().position(|(name, _)| name == wanted)?;
            Some(maps.swap_remove(at).1)
        };
        let [impair, measure, rules, forward] = STAGES.map(|(_, name)| take(name));
        Some(Root {
            program,
            link: link_of(id)?,
            maps: [impair?, measure?, rules?, forward?],
        })
    }

    /// The program of a stage.
    fn program(&self, stage: Stage) -> Option<u32> {
        let (key, mut id) = (0u32, 0u32);
        let map = self.maps[stage as usize].as_raw_fd();
        let (from, to) = ((&raw const key).cast(), (&raw mut id).cast());
        // SAFETY: reads and writes four bytes.
        let failed = unsafe { libbpf_sys::bpf_map_lookup_elem(map, from, to) } != 0;
        (!failed && id != 0).then_some(id)
    }

    /// A program that exists and cannot run with this stage, or uses it.
    fn conflicting_of(&self, stage: Stage) -> Option<u32> {
        let others = STAGES
            .iter()
            .filter(|(other, _)| !stage.composes_with(*other));
        others.filter_map(|(other, _)| self.program(*other)).next()
    }
}

fn install(
    program: BorrowedFd<'_>,
    stage: Stage,
    ifindex: IfIndex,
    there: Option<Root>,
) -> Result<Held, Refused> {
    let mut place = MaybeUninit::uninit();
    let mut open = XdpSkelBuilder::default()
        .open(&mut place)
        .map_err(reported)?;
    let mut stages = 1 << stage as u32;
    for (other, _) in STAGES {
        let Some(root) = there.as_ref().filter(|root| root.program(other).is_some()) else {
            continue;
        };
        stages |= 1 << other as u32;
        let maps = &mut open.maps;
        let map = match other {
            Stage::Impair => &mut maps.stage_impair,
            Stage::Measure => &mut maps.stage_measure,
            Stage::Rules => &mut maps.stage_rules,
            Stage::Forward => &mut maps.stage_forward,
        };
        map.reuse_fd(root.maps[other as usize].as_fd())
            .map_err(reported)?;
    }
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.xdp_stages = stages;
    }
    let skel = open.load().map_err(reported)?;
    let map = match stage {
        Stage::Impair => &skel.maps.stage_impair,
        Stage::Measure => &skel.maps.stage_measure,
        Stage::Rules => &skel.maps.stage_rules,
        Stage::Forward => &skel.maps.stage_forward,
    };
    let fd = program.as_raw_fd().to_ne_bytes();
    map.update(&0u32.to_ne_bytes(), &fd, MapFlags::ANY)
        .map_err(reported)?;
    let root = skel.progs.fairpath_xdp.as_fd();
    let link = match there {
        Some(there) => {
            replace(&there, root)?;
            there.link
        }
        None => create(root, ifindex)?,
    };
    Ok(Held {
        map: map.as_fd().try_clone_to_owned()?,
        link,
        root: root.try_clone_to_owned()?,
        pinned: false,
    })
}

/// The errno of the kernel from an error of libbpf.
fn reported(error: libbpf_rs::Error) -> Refused {
    let source = match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => io::Error::from_raw_os_error(libc::EPERM),
        _ => io::Error::other(error.to_string()),
    };
    source.into()
}

/// Replaces the root that was read before, and no other one.
fn replace(there: &Root, root: BorrowedFd<'_>) -> io::Result<()> {
    let (link, new) = (there.link.as_raw_fd(), root.as_raw_fd());
    let options = libbpf_sys::bpf_link_update_opts {
        sz: size_of::<libbpf_sys::bpf_link_update_opts>() as _,
        flags: libbpf_sys::BPF_F_REPLACE,
        old_prog_fd: there.program.as_raw_fd() as _,
        ..libbpf_sys::bpf_link_update_opts::default()
    };
    // SAFETY: descriptors, and options with their size.
    if unsafe { libbpf_sys::bpf_link_update(link, new, &raw const options) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    // The root is loaded already, so permissions are not the reason.
    Err(match error.raw_os_error() {
        Some(libc::EPERM) => io::Error::from_raw_os_error(libc::ESTALE),
        _ => error,
    })
}

fn create(root: BorrowedFd<'_>, ifindex: IfIndex) -> Result<OwnedFd, Refused> {
    let (program, target) = (root.as_raw_fd(), ifindex.0 as i32);
    // SAFETY: two numbers; no options.
    let created = unsafe {
        libbpf_sys::bpf_link_create(program, target, libbpf_sys::BPF_XDP, std::ptr::null())
    };
    owned(created).map_err(|source| Refused {
        existing: attach::existing(&source, ifindex),
        source,
    })
}

/// The result of a libbpf call: a descriptor that no other code owns, or an error.
fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: fresh, as said.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The maps of a program, with their names.
fn maps_of(program: BorrowedFd<'_>) -> Option<Vec<(String, OwnedFd)>> {
    // The maps of the root are the stages and its constants.
    let mut ids = [0u32; 2 * STAGES.len()];
    let mut info = libbpf_sys::bpf_prog_info {
        nr_map_ids: ids.len() as u32,
        map_ids: ids.as_mut_ptr() as u64,
        ..libbpf_sys::bpf_prog_info::default()
    };
    let mut len = size_of_val(&info) as u32;
    let to = &raw mut info;
    // SAFETY: `to` points to `len` writable bytes, an array of that many numbers.
    if unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), to, &mut len) } != 0 {
        return None;
    }
    let known = ids.iter().take(info.nr_map_ids as usize);
    known.map(|id| map_of(*id)).collect()
}

fn map_of(id: u32) -> Option<(String, OwnedFd)> {
    // SAFETY: takes a number.
    let map = owned(unsafe { libbpf_sys::bpf_map_get_fd_by_id(id) }).ok()?;
    let mut info = libbpf_sys::bpf_map_info::default();
    let mut len = size_of_val(&info) as u32;
    let to = &raw mut info;
    // SAFETY: `to` points to `len` writable bytes.
    if unsafe { libbpf_sys::bpf_map_get_info_by_fd(map.as_raw_fd(), to, &mut len) } != 0 {
        return None;
    }
    // SAFETY: the kernel ends names with 0, within their 16 bytes.
    let name = unsafe { CStr::from_ptr(info.name.as_ptr()) };
    Some((name.to_string_lossy().into_owned(), map))
}

/// The link that attaches a program to an interface by XDP.
fn link_of(program: u32) -> Option<OwnedFd> {
    let mut id = 0;
    loop {
        let last = id;
        // SAFETY: writes the next number.
        if unsafe { libbpf_sys::bpf_link_get_next_id(last, &mut id) } != 0 {
            return None;
        }
        // SAFETY: takes a number.
        let Ok(link) = owned(unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) }) else {
            continue;
        };
        let mut info = libbpf_sys::bpf_link_info::default();
        let mut len = size_of_val(&info) as u32;
        let to = &raw mut info;
        // SAFETY: `to` points to `len` writable bytes.
        let result = unsafe { libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), to, &mut len) };
        if result == 0 && info.type_ == libbpf_sys::BPF_LINK_TYPE_XDP && info.prog_id == program {
            return Some(link);
        }
    }
}
