//! The few BPF instructions of the probes (RFC 9669; the two kernel extensions are named).

/// `struct bpf_insn`: opcode, registers (destination in the lower four bits), offset, immediate.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Insn {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

const BPF_PSEUDO_MAP_FD: u8 = 1;
/// `BPF_ADDR_SPACE_CAST`, in the offset of a register move.
const ADDR_SPACE_CAST: i16 = 1;
/// From the arena's address space (1) to the kernel's (0).
const ARENA_TO_KERNEL: i32 = 1;

impl Insn {
    const fn new(code: u8, dst: u8, src: u8, offset: i16, immediate: i32) -> Insn {
        Insn {
            code,
            registers: src << 4 | dst,
            offset,
            immediate,
        }
    }
}

/// `dst = value`
pub(super) const fn mov(dst: u8, value: i32) -> Insn {
    Insn::new(0xb7, dst, 0, 0, value)
}

/// `dst = 64-bit value`, two slots long
pub(super) const fn load_u64(dst: u8, value: u64) -> [Insn; 2] {
    [
        Insn::new(0x18, dst, 0, 0, value as u32 as i32),
        Insn::new(0, 0, 0, 0, (value >> 32) as i32),
    ]
}

/// `dst = the map behind fd`, two slots long
pub(super) const fn load_map(dst: u8, fd: i32) -> [Insn; 2] {
    [
        Insn::new(0x18, dst, BPF_PSEUDO_MAP_FD, 0, fd),
        Insn::new(0, 0, 0, 0, 0),
    ]
}

/// `*(u32 *)(dst + offset) = value`
pub(super) const fn store_u32(dst: u8, offset: i16, value: i32) -> Insn {
    Insn::new(0x62, dst, 0, offset, value)
}

/// Turns an arena address in `register` into one the kernel can use (Linux 6.9).
pub(super) const fn arena_to_kernel(register: u8) -> Insn {
    Insn::new(0xbf, register, register, ADDR_SPACE_CAST, ARENA_TO_KERNEL)
}

/// `goto pc + 1 + offset`
pub(super) const fn jump(offset: i16) -> Insn {
    Insn::new(0x05, 0, 0, offset, 0)
}

/// Leaves the loop to `pc + 1 + offset` when the kernel's limit is reached (Linux 6.9).
pub(super) const fn may_goto(offset: i16) -> Insn {
    Insn::new(0xe5, 0, 0, offset, 0)
}

/// Returns r0.
pub(super) const fn exit() -> Insn {
    Insn::new(0x95, 0, 0, 0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instruction_is_eight_bytes_and_registers_share_one() {
        assert_eq!(size_of::<Insn>(), 8);
        assert_eq!(Insn::new(0xbf, 2, 10, 0, 0).registers, 0xa2);
        let [low, high] = load_u64(1, 0x0000_1000_8000_0001);
        assert_eq!(low.immediate as u32, 0x8000_0001);
        assert_eq!(high.immediate, 0x1000);
    }
}
