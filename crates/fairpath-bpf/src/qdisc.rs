//! The scheduler as a qdisc: registered under a name of its own, then put on a device like any other
//! (`tc qdisc add dev IF root NAME`).
//!
//! The name lives as long as this value; a qdisc that is in place by then goes on without it, and
//! its memory with it. Needs Linux 6.16 with `CONFIG_NET_SCH_BPF`.
//! Absent: putting it on a device, which is netlink's.

use std::fmt;
use std::ptr::NonNull;

use fairpath_core::sched::{HomeError, NodeStats, Op, Plan, SchedLayout, SchedMemory, SchedStats};
use libbpf_rs::{Link, MapCore, Object, ObjectBuilder, OpenObject};

use crate::arena::{self, PAGE, START, STRIDE};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/qdisc.bpf.o"));
/// The map that registers it, and the name's bytes in it (`IFNAMSIZ`).
const OPS_MAP: &str = "fairpath";
const NAME_BYTES: usize = 16;
/// What is left for `struct fp_work`.
const WORK_BYTES: u64 = 4096;

/// `struct fp_port`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Port {
    qdisc: u64,
    strangers: u64,
    again: u64,
    free: u32,
    sent: u32,
    op_at: u64,
    free_at: u64,
    work_at: u64,
}

/// Where everything lies in the arena: offsets from its beginning.
struct Places {
    room: u64,
    port: u64,
    work: u64,
    free: u64,
    end: u64,
}

impl Places {
    fn new(scheduler: u64, packets: u32) -> Places {
        let room = START + scheduler.next_multiple_of(64);
        let port = (room + SchedMemory::room_bytes(1) as u64).next_multiple_of(64);
        let work = (port + size_of::<Port>() as u64).next_multiple_of(64);
        let free = work + WORK_BYTES;
        let end = free + (u64::from(packets) + 1) * 4;
        Places {
            room,
            port,
            work,
            free,
            end,
        }
    }
}

/// A scheduler that devices can have as their qdisc.
pub struct BpfQdisc {
    memory: SchedMemory,
    _link: Link,
    _object: Object,
}

// SAFETY: counters are read while programs write them, as plain numbers; nothing else is shared.
unsafe impl Send for BpfQdisc {}

impl fmt::Debug for BpfQdisc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BpfQdisc")
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

fn refused(error: &libbpf_rs::Error) -> HomeError {
    HomeError::Kernel(format!(
        "{error}; a BPF qdisc needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, and Linux 6.16 or newer (`fairpath features` tells what is missing)"
    ))
}

impl BpfQdisc {
    /// Lays a plan out and registers it as the qdisc `name`, of 1 to 15 bytes.
    ///
    /// # Errors
    /// [`HomeError`]: the plan cannot be laid out, the name is taken, or what the kernel lacks.
    pub fn register(plan: &Plan, name: &str) -> Result<BpfQdisc, HomeError> {
        let packets = plan.config.packets;
        let mut layout = SchedLayout::new(plan, None)?;
        let places = Places::new(layout.bytes(), packets);
        let pages = places.end.div_ceil(PAGE);
        if pages * PAGE > STRIDE {
            return Err(HomeError::Plan(format!(
                "{} bytes exceed the arena's 4 GiB; ask for fewer packets or flows",
                places.end
            )));
        }
        let open = open(name, packets, pages, places.port).map_err(|error| refused(&error))?;
        let mut object = open.load().map_err(|error| refused(&error))?;
        let memory = format(&object, &mut layout, &places, packets, pages)?;
        let mut maps = object.maps_mut();
        let ops = maps.find(|map| map.name() == OPS_MAP);
        let link = ops
            .ok_or_else(|| HomeError::Kernel("the object registers no qdisc".into()))?
            .attach_struct_ops()
            .map_err(|error| refused(&error))?;
        drop(maps);
        Ok(BpfQdisc {
            memory,
            _link: link,
            _object: object,
        })
    }

    /// Sums since the start.
    pub fn stats(&self) -> SchedStats {
        self.memory.stats()
    }

    /// What node `node` sent, dropped and holds.
    pub fn node_stats(&self, node: u32) -> NodeStats {
        self.memory.node_stats(node)
    }
}

fn open(name: &str, packets: u32, pages: u64, port: u64) -> Result<OpenObject, libbpf_rs::Error> {
    let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
    for mut map in open.maps_mut() {
        let kind = map.name().to_string_lossy().into_owned();
        match kind.as_str() {
            "arena" => {
                map.set_max_entries(pages as u32)?;
                map.set_map_extra(arena::next_address())?;
            }
            "packets" => map.set_max_entries(packets + 1)?,
            OPS_MAP => {
                if let Some(value) = map.initial_value_mut() {
                    let bytes = name.bytes().take(NAME_BYTES - 1);
                    value[..NAME_BYTES].fill(0);
                    value
                        .iter_mut()
                        .zip(bytes)
                        .for_each(|(to, from)| *to = from);
                }
            }
            _ if kind.ends_with(".port") => {
                if let Some(value) = map.initial_value_mut() {
                    value[..8].copy_from_slice(&port.to_ne_bytes());
                }
            }
            _ => {}
        }
    }
    Ok(open)
}

/// The scheduler, its port and the stack of handles, the first on top.
fn format(
    object: &Object,
    layout: &mut SchedLayout,
    places: &Places,
    packets: u32,
    pages: u64,
) -> Result<SchedMemory, HomeError> {
    let arena = object.maps().find(|map| map.name() == "arena");
    let start = arena
        .and_then(|map| arena::mapped_at(&map))
        .ok_or_else(|| {
            HomeError::Kernel("the arena is not mapped; the kernel or libbpf is too old".into())
        })?;
    // SAFETY: the arena is mapped from `start` on, `pages` pages long; no program runs.
    unsafe { arena::touch(start, pages) };
    // SAFETY: within the pages, as are all places.
    let at = |place: u64| unsafe { start.add(place as usize) };
    // SAFETY: fresh arena pages are zero and aligned; the mapping lives as long as the object.
    let mut memory = unsafe { layout.format(at(START)) }?;
    // SAFETY: the room was made for one operation; nothing runs.
    unsafe { memory.begin(&[] as &[Op], at(places.room), 1) };
    let free: NonNull<u32> = at(places.free).cast();
    for (place, handle) in (1..=packets).rev().enumerate() {
        // SAFETY: the stack has room for all handles.
        let slot = unsafe { free.add(place) };
        // SAFETY: likewise.
        unsafe { slot.write(handle) };
    }
    let port = Port {
        free: packets,
        op_at: places.room,
        free_at: places.free,
        work_at: places.work,
        ..Port::default()
    };
    // SAFETY: room was left for the port, aligned to 64.
    unsafe { at(places.port).cast::<Port>().write(port) };
    Ok(memory)
}
